from __future__ import annotations

import unicodedata

import pytest

from qknorm.metrics.script import bleu_tokenizer, is_spaceless

CHINESE = ["我喜欢读书，也喜欢音乐。", "今天的天气很好。", "他昨天从北京来到上海。"]
JAPANESE = ["私は本を読むのが好きです。", "今日は天気がとても良いです。", "彼は昨日東京に来ました。"]
THAI = ["ฉันชอบอ่านหนังสือ", "วันนี้อากาศดีมาก", "เขามาจากกรุงเทพเมื่อวานนี้"]
KOREAN = ["나는 책 읽는 것을 좋아합니다.", "오늘은 날씨가 아주 좋습니다.", "그는 어제 서울에 왔습니다."]


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        (CHINESE, "zh"),
        (JAPANESE, "char"),
        (THAI, "char"),
        (["ကျွန်တော် စာဖတ်ရတာ ကြိုက်တယ်။"], "char"),
        (KOREAN, "13a"),
        (["Mi piace leggere.", "Я люблю читать.", "أحب القراءة", "मुझे पढ़ना पसंद है"], "13a"),
        (["", "123 … !"], "13a"),
        ([], "13a"),
        (["The word 猫 means cat, and 犬 means dog."], "13a"),
        (["我们用 PyTorch 2.10 训练了一个很小的翻译模型。"], "zh"),
        (["他在一家叫做の的商店里买了很多便宜的新鲜水果和蔬菜。"], "zh"),
        (["コンピューターのキーボードとマウスを買いたいです"], "char"),
        (["半角ｶﾀｶﾅ"], "char"),
        ([*CHINESE, "OK"], "zh"),
        (["The shop is closed today.", "好"], "13a"),
    ],
)
def test_most_letters_of_all_references_decide(references: list[str], expected: str) -> None:
    assert bleu_tokenizer(references) == expected


@pytest.mark.parametrize(("text", "expected"), [("字々かカーｶกກកကཀ", True), ("aжع한अ1。 ", False)])
def test_characters_that_stand_without_spaces(text: str, expected: bool) -> None:
    assert {unicodedata.name(character): is_spaceless(character) for character in text} == {
        unicodedata.name(character): expected for character in text
    }
