from __future__ import annotations

from qknorm.experiments.report.sections.examples import marked


def test_words_that_differ_are_marked() -> None:
    words = marked("der Hund läuft schnell.", "der Hund rennt schnell.", "ein Hund läuft schnell")
    assert "".join(word.text for word in words) == "der Hund läuft schnell."
    assert [word.text for word in words if word.not_in_reference] == ["läuft"]
    assert [word.text for word in words if word.only_here] == ["der", "."]
    assert [word.text for word in marked("狗跑", "猫跑", None) if word.not_in_reference] == ["狗"]
