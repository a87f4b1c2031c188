"""The phrasebook: its Galician and English are right, and its draw is distinct and repeatable."""

import hashlib
import os
import re
import subprocess
import sys

import pytest

from qknorm.data.phrasebook import grammar as book
from qknorm.data.phrasebook import lexicon
from qknorm.data.phrasebook.grammar import Action, Bilingual, Clause, Phrase, question, sentence, statement
from qknorm.data.phrasebook.lexicon import THAT, THE, THIS, A, Determiner

NOUN = {noun.english[0]: noun for nouns in lexicon.NOUNS.values() for noun in nouns}
VERB = {verb.base: verb for verb in (*lexicon.ACTIVITIES, *lexicon.TRANSITIVES, *lexicon.MOTIONS)}
ME, YOU, HE, WE, YOU_ALL, THEY, SHE = book.PRONOUNS
MY, YOUR, HIS, HER, OUR, THEIR = lexicon.POSSESSIVES
TWO, THREE = lexicon.NUMERALS[:2]
ANA = Phrase(Bilingual("Ana", "Ana"), feminine=True)


def adjective(english: str, kind: str) -> lexicon.Adjective:
    return next(word for word in lexicon.ADJECTIVES[kind] if word.english == english)


def phrase(determiner: Determiner, noun: str, quality: str = "", plural: bool = False) -> Phrase:
    kind = NOUN[noun].kind
    return book.noun_phrase(NOUN[noun], determiner, plural, adjective(quality, kind) if quality else None)


def do(verb: str, thing: Phrase | None = None) -> Action:
    return book.add_object(VERB[verb], thing.text if thing else Bilingual("", ""))


def be(subject: Phrase, quality: str, kind: str = "person") -> Action:
    return book.be(subject, adjective(quality, kind))


def go(english: str, galician: str, place: Bilingual) -> Action:
    return Action(VERB["go"], book.after(english, galician, place))


@pytest.fixture(scope="module")
def corpus() -> list[Bilingual]:
    return book.pairs(50_000)


PHRASES = [
    (phrase(THE, "house", "red"), "the red house", "a casa vermella"),
    (phrase(THE, "car", "red", plural=True), "the red cars", "os coches vermellos"),
    (phrase(A, "orange", "sweet"), "a sweet orange", "unha laranxa doce"),
    (phrase(A, "apple"), "an apple", "unha mazá"),
    (phrase(A, "shirt", "old"), "an old shirt", "unha camisa vella"),
    (phrase(A, "university"), "a university", "unha universidade"),
    (phrase(THIS, "hotel", "expensive", plural=True), "these expensive hotels", "estes hoteis caros"),
    (phrase(THAT, "spoon", "blue", plural=True), "those blue spoons", "esas culleres azuis"),
    (phrase(MY, "newspaper", "good", plural=True), "my good newspapers", "os meus xornais bos"),
    (phrase(YOUR, "message", "short"), "your short message", "a túa mensaxe curta"),
    (phrase(HER, "novel", "easy", plural=True), "her easy novels", "as súas novelas fáciles"),
    (phrase(OUR, "dog"), "our dog", "o noso can"),
    (phrase(TWO, "tree", plural=True), "two trees", "dúas árbores"),
    (phrase(TWO, "pencil", plural=True), "two pencils", "dous lapis"),
    (phrase(lexicon.SOME, "knife", plural=True), "some knives", "uns coitelos"),
    (phrase(lexicon.ALL_THE, "lady", "hard-working", plural=True), "all the hard-working ladies",
     "todas as señoras traballadoras"),
]  # fmt: skip

SENTENCES = [
    # Tenses and persons; eu, ti, nós and vós are dropped, el, ela and eles kept.
    (statement(Clause(ME, do("eat", phrase(A, "apple")))), "I eat an apple", "como unha mazá"),
    (statement(Clause(SHE, do("eat", phrase(THE, "bread")), book.PAST)), "she ate the bread", "ela comeu o pan"),
    (statement(Clause(YOU_ALL, do("sleep"))), "you all sleep", "durmides"),
    (statement(Clause(HE, do("sleep"))), "he sleeps", "el dorme"),
    (statement(Clause(WE, do("bring", phrase(THE, "wine")), book.USED_TO)), "we used to bring the wine",
     "traïamos o viño"),
    (statement(Clause(YOU, do("look for", phrase(YOUR, "key")), book.PAST)), "you looked for your key",
     "buscaches a túa chave"),
    (statement(Clause(ME, do("look for", phrase(MY, "key")), book.PAST)), "I looked for my key",
     "busquei a miña chave"),
    (statement(Clause(ANA, do("read", phrase(THIS, "book")), book.PROGRESSIVE)), "Ana is reading this book",
     "Ana está lendo este libro"),
    (statement(Clause(THEY, do("have lunch"), book.GOING_TO)), "they are going to have lunch", "eles van xantar"),
    (statement(Clause(ME, do("do the homework"), book.WILL)), "I will do the homework", "farei os deberes"),
    (statement(Clause(WE, do("swim"), book.HAVE_TO)), "we have to swim", "temos que nadar"),
    (statement(Clause(ANA, do("have", phrase(A, "cat")), book.PAST)), "Ana had a cat", "Ana tiña un gato"),
    # Negation.
    (statement(Clause(ME, do("drink", phrase(THE, "milk")), negative=True)), "I do not drink the milk",
     "non bebo o leite"),
    (statement(Clause(SHE, do("see", phrase(THE, "man")), book.PAST, negative=True)), "she did not see the man",
     "ela non viu o home"),
    (statement(Clause(HE, do("dance"), book.CAN, negative=True)), "he cannot dance", "el non pode bailar"),
    # Questions.
    (question(Clause(YOU, do("want", phrase(THREE, "fig", plural=True)))), "do you want three figs",
     "queres tres figos"),
    (question(Clause(phrase(YOUR, "sister"), Action(lexicon.LIVE)), Bilingual("where", "onde")),
     "where does your sister live", "onde vive a túa irmá"),
    (question(Clause(phrase(THE, "house", "red"), Action(lexicon.ESTAR)), Bilingual("where", "onde")),
     "where is the red house", "onde está a casa vermella"),
    (question(Clause(YOU, do("work"), negative=True), Bilingual("why", "por que")), "why do you not work",
     "por que non traballas"),
    # Ser and estar, and the agreement of what follows.
    (statement(Clause(ANA, be(ANA, "tired"))), "Ana is tired", "Ana está cansa"),
    (statement(Clause(THEY, be(THEY, "alone"), book.PAST)), "they were alone", "eles estaban sós"),
    (statement(Clause(phrase(THE, "door", plural=True), be(phrase(THE, "door", plural=True), "white", "opening"))),
     "the doors are white", "as portas son brancas"),
    (statement(Clause(ME, Action(lexicon.TER, Bilingual("hungry", "fame")))), "I am hungry", "teño fame"),
    # Prepositions and their contractions.
    (statement(Clause(ME, go("to", "a", phrase(THE, "market").text))), "I go to the market", "vou ao mercado"),
    (statement(Clause(HE, go("to", "a", Bilingual("A Coruña", "A Coruña")), book.PAST)), "he went to A Coruña",
     "el foi á Coruña"),
    (statement(Clause(WE, do("wait for", phrase(THE, "train")))), "we wait for the train", "agardamos polo tren"),
    (statement(Clause(ME, do("talk about", phrase(THE, "film")), book.PAST)), "I talked about the film",
     "falei da película"),
    (statement(Clause(ME, do("think about", phrase(MY, "mother")))), "I think about my mother", "penso na miña nai"),
    (statement(Clause(SHE, do("play with", phrase(A, "dog")))), "she plays with a dog", "ela xoga cun can"),
    (statement(Clause(ANA, do("help", phrase(THE, "boy", plural=True)))), "Ana helps the boys", "Ana axuda aos nenos"),
]  # fmt: skip


@pytest.mark.parametrize(("built", "english", "galician"), PHRASES, ids=[row[1] for row in PHRASES])
def test_noun_phrases_agree_and_put_the_adjective_last(built: Phrase, english: str, galician: str) -> None:
    assert built.text == (english, galician)


@pytest.mark.parametrize(("built", "english", "galician"), SENTENCES, ids=[row[1] for row in SENTENCES])
def test_clauses_are_translated(built: Bilingual, english: str, galician: str) -> None:
    assert built == (english, galician)


@pytest.mark.parametrize(
    ("preposition", "text", "expected"),
    [
        ("de", "o pai", "do pai"),
        ("de", "esta cidade", "desta cidade"),
        ("preto de", "as portas", "preto das portas"),
        ("en", "outro bar", "noutro bar"),
        ("en", "unha aldea", "nunha aldea"),
        ("en", "A Coruña", "na Coruña"),
        ("a", "as dúas", "ás dúas"),
        ("a", "unha tenda", "a unha tenda"),
        ("con", "a miña irmá", "coa miña irmá"),
        ("con", "uns amigos", "cuns amigos"),
        ("con", "este can", "con este can"),
        ("por", "os libros", "polos libros"),
        ("para", "o neno", "para o neno"),
    ],
)
def test_prepositions_contract(preposition: str, text: str, expected: str) -> None:
    assert lexicon.contract(preposition, text) == expected


@pytest.mark.parametrize(
    ("subject", "liked", "negative", "galician"),
    [
        (ME, phrase(THE, "coffee"), False, "gústame o café"),
        (YOU, phrase(THE, "apple", plural=True), False, "gústanche as mazás"),
        (ANA, phrase(THE, "wine"), True, "a Ana non lle gusta o viño"),
        (phrase(MY, "brother", plural=True), phrase(THE, "sea"), False, "aos meus irmáns gústalles o mar"),
    ],
)
def test_liking_makes_the_english_subject_a_dative(
    subject: Phrase, liked: Phrase, negative: bool, galician: str
) -> None:
    assert book.galician_like(subject, liked, negative=negative) == galician


@pytest.mark.parametrize(
    ("value", "feminine", "expected"),
    [
        (1, True, ("one", "unha")),
        (2, True, ("two", "dúas")),
        (16, False, ("sixteen", "dezaseis")),
        (40, False, ("forty", "corenta")),
        (22, True, ("twenty-two", "vinte e dúas")),
        (99, False, ("ninety-nine", "noventa e nove")),
    ],
)
def test_numbers(value: int, feminine: bool, expected: tuple[str, str]) -> None:
    assert lexicon.number(value, feminine) == expected


def test_one_o_clock_is_singular_and_the_other_hours_are_plural() -> None:
    assert book.hour(1, half=True) == ("half past one", "a unha e media")
    assert book.hour(2, half=False) == ("two o'clock", "as dúas")


@pytest.mark.parametrize(
    ("infinitive", "expected"),
    [("comer", "comas"), ("buscar", "busques"), ("facer", "fagas"), ("conducir", "conduzas")],
)
def test_a_prohibition_is_in_the_subjunctive(infinitive: str, expected: str) -> None:
    assert lexicon.prohibition(infinitive) == expected


def test_a_sentence_has_a_capital_and_one_final_mark() -> None:
    assert sentence(Bilingual("are you ill", "á tarde"), "?") == ("Are you ill?", "Á tarde?")


def test_every_class_that_a_verb_or_place_names_exists() -> None:
    kinds = {kind for verb in (*lexicon.TRANSITIVES, *lexicon.ACTIVITIES) for kind in (*verb.objects, *verb.places)}
    kinds |= {kind for spots in lexicon.SPOTS.values() for _, landmarks in spots for kind in landmarks}
    kinds |= {kind for kind in lexicon.ADJECTIVES if kind != "person"} | set(lexicon.SPOTS)
    assert kinds <= set(lexicon.NOUNS)


def test_the_lexicon_has_at_least_250_entries() -> None:
    assert book.lexicon_size() >= 250


def test_50_000_pairs_are_distinct_in_english(corpus: list[Bilingual]) -> None:
    assert len({pair.english for pair in corpus}) == 50_000


def test_an_english_sentence_has_one_translation_however_often_it_is_drawn() -> None:
    dice, translation = book.Dice(1), dict[str, str]()
    for _ in range(100_000):
        english, galician = book.draw_sentence(dice)
        assert translation.setdefault(english, galician) == galician


def test_the_past_of_read_is_never_drawn_for_it_looks_like_the_present() -> None:
    dice = book.Dice(0)
    assert all(book.draw_tense(dice, VERB["read"]) != book.PAST for _ in range(1000))


def test_every_construction_gives_many_sentences() -> None:
    for construction in set(book.CONSTRUCTIONS):
        dice = book.Dice(2)
        assert len({construction(dice) for _ in range(200)}) > 20, construction.__name__


def test_sentences_have_a_capital_a_final_mark_and_single_spaces(corpus: list[Bilingual]) -> None:
    shape = re.compile(r"[A-ZÁÉÍÓÚ][^.?!]*[.?!]")
    for text in (text for pair in corpus for text in pair):
        assert shape.fullmatch(text), text
        assert "  " not in text
        assert not re.search(r" [,.?!]|-( |$)|_|None", text), text


def test_both_sides_end_in_the_same_mark(corpus: list[Bilingual]) -> None:
    assert all(english[-1] == galician[-1] for english, galician in corpus)


def test_no_preposition_is_left_uncontracted(corpus: list[Bilingual]) -> None:
    the, a, this = "o|a|os|as", "un|unha|uns|unhas", "est[ea]s?|es[ea]s?|outr[oa]s?|els?|elas?|eles"
    uncontracted = rf"\b((de|en) ({the}|{a}|{this})|con ({the}|{a})|(por|a) ({the}))\b"
    forbidden = re.compile(uncontracted, re.IGNORECASE)
    for pair in corpus:
        assert not forbidden.search(pair.galician), pair


def test_lengths_run_from_one_word_to_about_twenty(corpus: list[Bilingual]) -> None:
    lengths = [len(pair.english.split()) for pair in corpus]
    assert min(lengths) == 1
    assert 15 <= max(lengths) <= 25


def test_no_construction_dominates() -> None:
    constructions = book.CONSTRUCTIONS
    assert max(constructions.count(construction) for construction in constructions) < len(constructions) / 5


def digest_in_a_fresh_process(hash_seed: str) -> str:
    program = (
        "import hashlib; from qknorm.data.phrasebook import pairs;"
        "print(hashlib.sha256(repr([tuple(p) for p in pairs(3000, 7)]).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_seed_gives_the_same_pairs_in_every_process() -> None:
    here = hashlib.sha256(repr([tuple(pair) for pair in book.pairs(3000, 7)]).encode()).hexdigest()
    assert digest_in_a_fresh_process("1") == digest_in_a_fresh_process("2") == here


def test_another_seed_gives_another_order() -> None:
    assert book.pairs(100, seed=1) != book.pairs(100, seed=2)


def test_a_larger_count_continues_the_same_list() -> None:
    assert book.pairs(300)[:100] == book.pairs(100)


@pytest.mark.parametrize("count", [-1, book.MAXIMUM + 1])
def test_an_impossible_count_is_refused_at_once(count: int) -> None:
    with pytest.raises(ValueError, match="500,000"):
        book.pairs(count)
