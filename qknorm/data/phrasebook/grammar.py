"""phrasebook-en-gl: a generated English → Galician corpus, drawn from the grammar here and the lexicon beside it.

The Galician is a function of the English. Galician drops eu, ti, nós and vós, which the ending of the verb tells, and
keeps el, ela and eles, except where the pronoun only repeats the subject of the main clause. "You" is ti, "you all" is
vós; a person whose gender English does not tell is masculine. The draw depends on nothing but the seed: it uses only
`random.Random.random`, whose sequence Python keeps from version to version, and never the order of a set.
"""

import random
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from qknorm.data.phrasebook import lexicon
from qknorm.data.phrasebook.lexicon import (
    ADJECTIVES,
    NOUNS,
    Adjective,
    Bilingual,
    Determiner,
    Noun,
    Verb,
    conjugate,
    contract,
)

__all__ = ["MAXIMUM", "Bilingual", "lexicon_size", "pairs"]

MAXIMUM = 500_000  # beyond this the small constructions are long used up and the mixture is no longer natural

T = TypeVar("T")
NOTHING = Bilingual("", "")


def pairs(count: int, seed: int = 0) -> list[Bilingual]:
    """The first `count` distinct pairs drawn with `seed`; a larger count continues the same list."""
    if not 0 <= count <= MAXIMUM:
        raise ValueError(f"phrasebook-en-gl gives from 0 to {MAXIMUM:,} pairs; {count:,} were asked for")
    dice = Dice(seed)
    drawn: dict[Bilingual, None] = {}
    while len(drawn) < count:
        drawn[draw_sentence(dice)] = None
    return list(drawn)


def lexicon_size() -> int:
    """How many different words and set phrases the lexicon translates."""
    nouns = sum(map(len, NOUNS.values()))
    adjectives = {(word.english, word.forms) for words in ADJECTIVES.values() for word in words}
    verbs = {(verb.base, verb.infinitive) for verb in (*lexicon.TRANSITIVES, *lexicon.ACTIVITIES, *lexicon.MOTIONS)}
    tables = (
        lexicon.POSSESSIVES, lexicon.NUMERALS, *lexicon.NAMES.values(), lexicon.CITIES, lexicon.RELATIONS, lexicon.DAYS,
        lexicon.MONTHS, lexicon.SEASONS, lexicon.HABITUAL_TIMES, lexicon.PAST_TIMES, lexicon.FUTURE_TIMES,
        lexicon.PRESENT_TIMES, lexicon.TRANSPORT, lexicon.MANNERS, lexicon.PRESENT_ADVERBS, lexicon.FEELINGS,
        lexicon.GREETINGS, lexicon.FIXED_PHRASES,
    )  # fmt: skip
    return nouns + len(adjectives) + len(verbs) + sum(map(len, tables))


class Dice:
    """Random choices that are the same on every machine and Python version."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """Whether something with this probability happens."""
        return self._random() < probability

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, each as likely as the others."""
        return items[int(self._random() * len(items))]


# -- Phrases -----------------------------------------------------------------------------------------------------------

ME, YOU, HE, WE, YOU_ALL, THEY = range(6)  # the person and number of a verb


class Phrase(NamedTuple):
    """A noun phrase or pronoun, with what a verb or an adjective must agree with."""

    text: Bilingual
    person: int = HE
    feminine: bool = False

    @property
    def plural(self) -> bool:
        """Whether it stands for several."""
        return self.person >= WE


PRONOUNS = (
    Phrase(Bilingual("I", ""), ME),
    Phrase(Bilingual("you", ""), YOU),
    Phrase(Bilingual("he", "el"), HE),
    Phrase(Bilingual("we", ""), WE),
    Phrase(Bilingual("you all", ""), YOU_ALL),
    Phrase(Bilingual("they", "eles"), THEY),
    Phrase(Bilingual("she", "ela"), HE, feminine=True),
)
IT = Phrase(Bilingual("it", ""))


def words(*parts: str) -> str:
    """The parts that are not empty, with a space between."""
    return " ".join(part for part in parts if part)


def join(*parts: Bilingual) -> Bilingual:
    """The parts one after the other in both languages."""
    return Bilingual(words(*(part.english for part in parts)), words(*(part.galician for part in parts)))


def with_comma(first: Bilingual, second: Bilingual) -> Bilingual:
    """The two with a comma between."""
    return Bilingual(f"{first.english}, {second.english}", f"{first.galician}, {second.galician}")


def after(english: str, galician: str, phrase: Bilingual) -> Bilingual:
    """The phrase after a preposition, which may contract in Galician."""
    return Bilingual(f"{english} {phrase.english}", contract(galician, phrase.galician))


def indefinite(english: str) -> str:
    """The English text after "a" or "an", as it sounds."""
    return f"an {english}" if english[0] in "aeiouAEIOU" and not english.startswith("uni") else f"a {english}"


def agree(word: Adjective, phrase: Phrase) -> Bilingual:
    """The word in the gender and number of the phrase."""
    return Bilingual(word.english, word.forms[2 * phrase.plural + phrase.feminine])


def noun_phrase(noun: Noun, determiner: Determiner, plural: bool = False, adjective: Adjective | None = None) -> Phrase:
    """Determiner, noun and adjective; in Galician the adjective follows."""
    phrase = Phrase(NOTHING, THEY if plural else HE, noun.feminine)
    quality = agree(adjective, phrase) if adjective else NOTHING
    english = words(quality.english, noun.english[plural])
    english = indefinite(english) if determiner is lexicon.A else words(determiner.english[plural], english)
    form = determiner.forms[2 * plural + noun.feminine]
    return phrase._replace(
        text=Bilingual(english, words(form, noun.galician[plural], quality.galician, determiner.tail))
    )


def in_general(noun: Noun, article: bool = False) -> Phrase:
    """Apples, or bread; Galician says the article when it means them all."""
    determiner = Determiner(("", ""), lexicon.THE.forms if article else ("",) * 4)
    return noun_phrase(noun, determiner, plural=noun.countable)


def repeat(phrase: Phrase) -> Phrase:
    """The same person once more: a pronoun in English, nothing in Galician."""
    pronoun = PRONOUNS[-1 if phrase.person == HE and phrase.feminine else phrase.person]
    return phrase._replace(text=Bilingual(pronoun.text.english, ""))


# -- Verbs -------------------------------------------------------------------------------------------------------------


class Tense(NamedTuple):
    """A tense or modal, as templates.

    English: the auxiliary of each person, the rest, and the plain form if it does without the auxiliary.
    Galician: the auxiliary if there is one, the form of the finite verb, and the rest.
    """

    auxiliary: tuple[str, ...]
    rest: str
    plain: str
    galician: tuple[str, str, str]


_DO, _DID = ("do", "do", "does", "do", "do", "do"), ("did",) * 6
_BE, _WAS = ("am", "are", "is", "are", "are", "are"), ("was", "were", "was", "were", "were", "were")
PRESENT = Tense(_DO, "{base}", "{present}", ("", "present", ""))
PAST = Tense(_DID, "{base}", "{past}", ("", "preterite", ""))
USED_TO = Tense(_DID, "use to {base}", "used to {base}", ("", "imperfect", ""))
WILL = Tense(("will",) * 6, "{base}", "", ("", "future", ""))
GOING_TO = Tense(_BE, "going to {base}", "", ("ir", "present", "{infinitive}"))
PROGRESSIVE = Tense(_BE, "{ing}", "", ("estar", "present", "{gerund}"))
PAST_PROGRESSIVE = Tense(_WAS, "{ing}", "", ("estar", "imperfect", "{gerund}"))
WANT_TO = Tense(_DO, "want to {base}", "{want} to {base}", ("querer", "present", "{infinitive}"))
HAVE_TO = Tense(_DO, "have to {base}", "{have} to {base}", ("ter", "present", "que {infinitive}"))
CAN = Tense(("can",) * 6, "{base}", "", ("poder", "present", "{infinitive}"))
MUST = Tense(("must",) * 6, "{base}", "", ("deber", "present", "{infinitive}"))


@cache
def galician_verb(verb: Verb, tense: Tense, person: int) -> str:
    """The verb with its auxiliary; the past of a state is the imperfect."""
    auxiliary, form, rest = tense.galician
    if tense is PAST and verb.aspect == "state":
        form = "imperfect"
    rest = rest.format(infinitive=verb.infinitive, gerund=verb.infinitive[:-1] + "ndo")
    return words(conjugate(auxiliary or verb.infinitive, form, person), rest)


@cache
def english_verb(verb: Verb, tense: Tense, person: int) -> tuple[str, str, str]:
    """The auxiliary and the rest, which a question or negation parts, and the plain form; "be" takes no "do"."""
    if verb.base == "be" and tense in (PRESENT, PAST):
        form = (_BE if tense is PRESENT else _WAS)[person]
        return form, "", form
    present, have, want = (verb.third, "has", "wants") if person == HE else (verb.base, "have", "want")
    forms = {"base": verb.base, "present": present, "past": verb.past, "ing": verb.ing, "have": have, "want": want}
    auxiliary, rest = tense.auxiliary[person], tense.rest.format(**forms)
    return auxiliary, rest, tense.plain.format(**forms) or words(auxiliary, rest)


# -- Clauses -----------------------------------------------------------------------------------------------------------


class Action(NamedTuple):
    """A verb with all that follows it."""

    verb: Verb
    text: Bilingual = NOTHING


class Clause(NamedTuple):
    """Who does what, in which tense."""

    subject: Phrase
    action: Action
    tense: Tense = PRESENT
    negative: bool = False


def predicate(clause: Clause) -> Bilingual:
    """The clause without its subject."""
    subject, action, tense, negative = clause
    auxiliary, rest, english = english_verb(action.verb, tense, subject.person)
    galician = galician_verb(action.verb, tense, subject.person)
    if negative:
        english = words("cannot" if auxiliary == "can" else f"{auxiliary} not", rest)
        galician = f"non {galician}"
    return join(Bilingual(english, galician), action.text)


def statement(clause: Clause, adverb: Bilingual = NOTHING) -> Bilingual:
    """The clause as a statement; the adverb stands before the verb."""
    return join(clause.subject.text, adverb, predicate(clause))


def question(clause: Clause, asked: Bilingual = NOTHING) -> Bilingual:
    """The clause as a question; only after a question word does the Galician subject follow the verb."""
    subject, action, tense, negative = clause
    auxiliary, rest, _ = english_verb(action.verb, tense, subject.person)
    english = words(asked.english, auxiliary, subject.text.english, "not" if negative else "", rest)
    verb = words("non" if negative else "", galician_verb(action.verb, tense, subject.person))
    order = (verb, subject.text.galician) if asked.galician else (subject.text.galician, verb)
    return join(Bilingual(english, words(asked.galician, *order)), action.text)


def be(phrase: Phrase, adjective: Adjective, degree: Bilingual = NOTHING) -> Action:
    """To be big, tired or very old: ser or estar, as the adjective asks."""
    return Action(lexicon.COPULAS[adjective.copula], join(degree, agree(adjective, phrase)))


def add_object(verb: Verb, phrase: Bilingual) -> Action:
    """The verb with its object, after the Galician preposition if it takes one."""
    return Action(verb, Bilingual(phrase.english, contract(verb.tail, phrase.galician)))


_CLITICS = ("me", "che", "lle", "nos", "vos", "lles")
_STRESSED = {"gusta": "gústa", "gustan": "gústan", "gustou": "gustou", "gustaron": "gustáron"}


def galician_like(subject: Phrase, liked: Phrase, past: bool = False, negative: bool = False) -> str:
    """Ana likes apples = a Ana gústanlle as mazás: the apples are the subject, and Ana is the dative."""
    verb = conjugate("gustar", "preterite" if past else "present", THEY if liked.plural else HE)
    clitic = _CLITICS[subject.person]
    dative = contract("a", subject.text.galician) if subject.text.galician else ""
    return words(dative, f"non {clitic} {verb}" if negative else _STRESSED[verb] + clitic, liked.text.galician)


def sentence(text: Bilingual, mark: str = ".") -> Bilingual:
    """The text with a capital and its final mark; Galician has no opening one."""
    return Bilingual(*(part[0].upper() + part[1:] + mark for part in text))


# -- Drawing persons, things and places --------------------------------------------------------------------------------

# Determiners, each as often as it should be drawn.
_DEMONSTRATIVES = (*[lexicon.THE] * 5, lexicon.THIS, lexicon.THAT)
_DEFINITE = (*_DEMONSTRATIVES, *lexicon.POSSESSIVES)
_INDEFINITE = (*[lexicon.A] * 6, lexicon.SOME, lexicon.SOME, *lexicon.NUMERALS[:5], lexicon.MANY)
_COUNTED = (
    *_DEFINITE, lexicon.THE, *[lexicon.A] * 6, *[lexicon.BARE_PLURAL] * 2, *lexicon.NUMERALS[:2], lexicon.MANY,
    lexicon.ANOTHER, lexicon.ALL_THE,
)  # fmt: skip
_UNCOUNTED = (*_DEMONSTRATIVES, *[lexicon.BARE_MASS] * 5, *lexicon.POSSESSIVES[:2])
_UNOWNED = (*_DEMONSTRATIVES, *[lexicon.A] * 3, *lexicon.NUMERALS[:2], lexicon.MANY, lexicon.ANOTHER)
_PLACING = (*[lexicon.THE_ONE] * 9, lexicon.THIS_ONE, lexicon.THAT_ONE, lexicon.A)
_UNOWNED_KINDS = ("people", "profession", "wild", "transit", "sight", "tree", "shop", "work", "eatery", "settlement")
_DESCRIBED_KINDS = tuple(kind for kind in ADJECTIVES if kind not in ("people", "profession", "person"))


def draw_noun(dice: Dice, kinds: Sequence[str]) -> Noun:
    """A noun of one of the kinds."""
    return dice.pick(NOUNS[dice.pick(kinds)])


def draw_determiner(dice: Dice, noun: Noun) -> Determiner:
    """A determiner that suits the noun: not "my tourist", "two breads" or "the French"."""
    if noun.kind == "language":
        return lexicon.BARE_MASS
    if noun.kind in _UNOWNED_KINDS:
        return dice.pick(_UNOWNED)
    if dice.chance(0.08):
        return draw_owner(dice)
    if noun.kind == "family":
        return dice.pick(lexicon.POSSESSIVES)
    return dice.pick(_COUNTED if noun.countable else _UNCOUNTED)


def draw_owner(dice: Dice) -> Determiner:
    """Ana's car = o coche de Ana."""
    owner = draw_name(dice).text
    if dice.chance(0.5):
        owner = noun_phrase(dice.pick(NOUNS["family"]), dice.pick(lexicon.POSSESSIVES)).text
    return Determiner((f"{owner.english}'s",) * 2, lexicon.THE.forms, contract("de", owner.galician))


def draw_phrase(dice: Dice, noun: Noun, determiners: Sequence[Determiner] = (), qualified: float = 0.0) -> Phrase:
    """The noun in a number that it and its determiner have, with an adjective at the chance given."""
    determiner = dice.pick(determiners) if determiners else draw_determiner(dice, noun)
    if determiner is lexicon.A and not noun.countable:
        determiner = lexicon.THE_ONE
    plural = dice.pick([n for n in (False, True) if "-" not in (noun.english[n], determiner.english[n])])
    adjective = dice.pick(ADJECTIVES[noun.kind]) if noun.kind in ADJECTIVES and dice.chance(qualified) else None
    return noun_phrase(noun, determiner, plural, adjective)


def draw_name(dice: Dice) -> Phrase:
    """Ana, or Antón."""
    feminine = dice.chance(0.5)
    name = dice.pick(lexicon.NAMES[feminine])
    return Phrase(Bilingual(name, name), HE, feminine)


def draw_relative(dice: Dice) -> Phrase:
    """My mother, or Ana's brothers."""
    return draw_phrase(dice, dice.pick(NOUNS["family"]))


def draw_stranger(dice: Dice) -> Phrase:
    """The tall woman, or two doctors."""
    determiners = (*_DEMONSTRATIVES, *lexicon.NUMERALS[:2])
    return draw_phrase(dice, draw_noun(dice, ("people", "profession")), determiners, qualified=0.2)


def draw_named(dice: Dice) -> Phrase:
    """One or more persons, not by a pronoun."""
    return dice.pick((draw_name, draw_name, draw_relative, draw_relative, draw_relative, draw_stranger))(dice)


def draw_person(dice: Dice) -> Phrase:
    """Whoever does or is something: she, Ana, my brothers, Ana and I, Ana and my brother."""
    if dice.chance(0.45):
        return dice.pick(PRONOUNS)
    if dice.chance(0.9):
        return draw_named(dice)
    first, second = draw_name(dice), draw_phrase(dice, dice.pick(NOUNS["family"]), lexicon.POSSESSIVES)
    if dice.chance(0.3):
        return Phrase(join(first.text, Bilingual("and I", "e mais eu")), WE)
    return Phrase(join(first.text, Bilingual("and", "e"), second.text), THEY, first.feminine and second.feminine)


def draw_thing(dice: Dice, kinds: Sequence[str] = _DESCRIBED_KINDS, qualified: float = 0.0) -> tuple[Noun, Phrase]:
    """A definite thing, and its noun."""
    noun = draw_noun(dice, kinds)
    return noun, draw_phrase(dice, noun, _DEMONSTRATIVES if noun.kind in _UNOWNED_KINDS else _DEFINITE, qualified)


def in_city(dice: Dice) -> Bilingual:
    """In Vigo, na Coruña."""
    return after("in", "en", dice.pick(lexicon.CITIES))


def in_place(dice: Dice, kinds: Sequence[str], qualified: float = 0.15) -> Bilingual:
    """In the kitchen = na cociña; at times a city instead of a place within one."""
    if "town" in kinds and dice.chance(0.25):
        return in_city(dice)
    noun = draw_noun(dice, kinds)
    preposition = lexicon.PLACE_PREPOSITIONS.get(noun.english[0], "in")
    return after(preposition, "en", draw_phrase(dice, noun, _PLACING, qualified).text)


def draw_spot(dice: Dice, noun: Noun) -> Bilingual:
    """Where the noun may be: on the table, behind the house; never near itself."""
    relation, kinds = dice.pick(lexicon.SPOTS[noun.kind])
    if relation == "in":
        return in_place(dice, kinds, qualified=0.1)
    landmark = draw_noun(dice, kinds)
    if landmark is noun:
        return in_city(dice)
    place = draw_phrase(dice, landmark, (lexicon.THE_ONE,), qualified=0.1).text
    return after(relation, lexicon.RELATIONS[relation], place)


# -- Drawing times -----------------------------------------------------------------------------------------------------


def hour(value: int, half: bool) -> Bilingual:
    """Three o'clock = as tres, half past one = a unha e media."""
    english, galician = lexicon.number(value, feminine=True)
    article = "a" if value == 1 else "as"
    if half:
        return Bilingual(f"half past {english}", f"{article} {galician} e media")
    return Bilingual(f"{english} o'clock", f"{article} {galician}")


_HOURS = tuple(hour(value, half) for value in range(1, 13) for half in (False, True))
_SPANS = tuple(
    join(lexicon.number(count, feminine=unit.galician == "semanas"), unit)
    for unit in (
        Bilingual("days", "días"),
        Bilingual("weeks", "semanas"),
        Bilingual("months", "meses"),
        Bilingual("years", "anos"),
    )
    for count in range(2, 6)
)
_TURNS = (*(Bilingual(day, f"o {singular}") for day, singular, _ in lexicon.DAYS), *lexicon.SEASONS)
_AT_HOUR = tuple(after("at", "a", time) for time in _HOURS)
_ON_DAY = tuple(Bilingual(f"on {day}", f"o {singular}") for day, singular, _ in lexicon.DAYS)
_ON_DAYS = tuple(Bilingual(f"on {day}s", f"os {plural}") for day, _, plural in lexicon.DAYS)
_IN_MONTH = tuple(after("in", "en", month) for month in lexicon.MONTHS)
_IN_SEASON = tuple(after("in", "en", season) for season in lexicon.SEASONS)
_LAST = tuple(Bilingual(f"last {turn.english}", f"{turn.galician} pasad{turn.galician[0]}") for turn in _TURNS)
_NEXT = tuple(Bilingual(f"next {turn.english}", f"{turn.galician} que vén") for turn in _TURNS)
_AGO = tuple(Bilingual(f"{span.english} ago", f"hai {span.galician}") for span in _SPANS)
_IN_A_WHILE = tuple(after("in", "dentro de", span) for span in _SPANS[:8])

# The tables of times that suit a tense; any tense not here speaks of what is to come.
_COMING = (lexicon.FUTURE_TIMES, lexicon.FUTURE_TIMES, _NEXT, _IN_A_WHILE, _ON_DAY, _AT_HOUR)
_TIMES = {
    PRESENT: (lexicon.HABITUAL_TIMES, lexicon.HABITUAL_TIMES, _ON_DAYS, _IN_SEASON, _IN_MONTH, _AT_HOUR),
    USED_TO: (lexicon.HABITUAL_TIMES, _ON_DAYS, _IN_SEASON),
    PAST: (lexicon.PAST_TIMES, lexicon.PAST_TIMES, _LAST, _AGO, _ON_DAY, _IN_MONTH, _AT_HOUR),
    PROGRESSIVE: (lexicon.PRESENT_TIMES,),
    PAST_PROGRESSIVE: (lexicon.PAST_TIMES[:4], _AT_HOUR),
}


def draw_time(dice: Dice, clause: Clause, probability: float) -> Bilingual:
    """A time that suits the tense, or nothing; a state has none."""
    if clause.action.verb.aspect == "state" or not dice.chance(probability):
        return NOTHING
    return dice.pick(dice.pick(_TIMES.get(clause.tense, _COMING)))


# -- Drawing clauses ---------------------------------------------------------------------------------------------------

# The tenses of each aspect, each as often as it should be drawn.
_PLAIN = (*[PRESENT] * 4, *[PAST] * 4)
_PLANNED = (*[GOING_TO] * 3, WILL, WANT_TO, HAVE_TO, CAN, MUST)
_TENSES = {
    "lasting": (*_PLAIN, *_PLANNED, PROGRESSIVE, PROGRESSIVE, PAST_PROGRESSIVE, USED_TO),
    "whole": (*_PLAIN, *_PLANNED),
    "mishap": (PRESENT, *[PAST] * 4, WILL),
    "state": (*[PRESENT] * 6, *[PAST] * 2, WILL),
}
_DEGREES = (*[Bilingual("very", "moi")] * 4, Bilingual("too", "demasiado"))
_MOSTLY_NOW = (PRESENT, PRESENT, PRESENT, PAST)
_LASTING = [verb for verb in lexicon.TRANSITIVES if verb.aspect == "lasting" and verb.past != verb.base]
_AKIN = [akin for kind in NOUNS if len(akin := [verb for verb in _LASTING if verb.objects[0] == kind]) > 1]
_EDIBLE = ("fruit", "food", "dish", "drink")
_CONSUMING = [verb for verb in lexicon.TRANSITIVES if verb.base in ("eat", "drink", "cook", "buy", "want", "prefer")]
_HINDRANCES = ("sad", "worried", "nervous", "tired", "ill", "busy")
_DONE_FOR_OTHERS = ("mercar", "cociñar", "preparar", "traer", "escribir", "debuxar")


def draw_tense(dice: Dice, verb: Verb) -> Tense:
    """A tense that suits the verb; never the past of "read", which looks like its present."""
    tense = dice.pick(_TENSES[verb.aspect])
    return GOING_TO if tense is PAST and verb.past == verb.base else tense


def draw_company(dice: Dice, subject: Phrase, probability: float) -> Bilingual:
    """Nothing, or with whom; never "I" with "us" or "you" with "you"."""
    if not dice.chance(probability):
        return NOTHING
    if dice.chance(0.4):
        return dice.pick([text for n, text in enumerate(lexicon.COMPANIONS) if n % 3 != subject.person % 3])
    return after("with", "con", (draw_name if dice.chance(0.4) else draw_relative)(dice).text)


def draw_place(dice: Dice, verb: Verb, probability: float) -> Bilingual:
    """Nothing, or where one does this."""
    return in_place(dice, verb.places) if verb.places and dice.chance(probability) else NOTHING


def draw_object(dice: Dice, verb: Verb) -> Action:
    """The verb with an object of a kind that it takes."""
    return add_object(verb, draw_phrase(dice, draw_noun(dice, verb.objects), qualified=0.25).text)


def draw_deed(dice: Dice, subject: Phrase) -> Action:
    """To do something to something, perhaps for or with someone, somewhere."""
    verb, text = draw_object(dice, dice.pick(lexicon.TRANSITIVES))
    if verb.infinitive in _DONE_FOR_OTHERS and dice.chance(0.25):
        return Action(verb, join(text, after("for", "para", draw_relative(dice).text)))
    company = draw_company(dice, subject, 0.15 if verb.aspect == "lasting" and verb.places else 0)
    return Action(verb, join(text, company, draw_place(dice, verb, 0.3)))


def draw_activity(dice: Dice, subject: Phrase) -> Action:
    """To swim, perhaps well, with someone, somewhere."""
    verb = dice.pick(lexicon.ACTIVITIES)
    one_word = not verb.tail and " " not in verb.base
    manner = dice.pick(lexicon.MANNERS) if one_word and dice.chance(0.2) else Bilingual("", verb.tail)
    return Action(verb, join(manner, draw_company(dice, subject, 0.2), draw_place(dice, verb, 0.5)))


def draw_motion(dice: Dice, subject: Phrase) -> Action:
    """To go somewhere, perhaps with someone or by train; or to live somewhere."""
    if dice.chance(0.25):
        place = in_city(dice) if dice.chance(0.6) else in_place(dice, ("house", "settlement"), qualified=0.5)
        return Action(lexicon.LIVE, place)
    if dice.chance(0.4):
        goal, transport = dice.pick(lexicon.CITIES), dice.pick(lexicon.TRANSPORT[:4])
    else:
        noun = draw_noun(dice, ("town", "shop", "work", "eatery", "sight", "water", "settlement"))
        goal, transport = draw_phrase(dice, noun, _PLACING).text, dice.pick(lexicon.TRANSPORT[2:])
    text = join(after("to", "a", goal), draw_company(dice, subject, 0.2), transport if dice.chance(0.3) else NOTHING)
    return Action(dice.pick(lexicon.MOTIONS), text)


_ACTIONS = (*[draw_deed] * 12, *[draw_activity] * 7, *[draw_motion] * 4)


def draw_action(dice: Dice, subject: Phrase) -> Action:
    """Something that the subject does, and not to itself."""
    while True:
        action = dice.pick(_ACTIONS)(dice, subject)
        if f" {subject.text.english} " not in f" {action.text.english} ":
            return action


def draw_clause(dice: Dice, subject: Phrase, negative: float = 0.2) -> Clause:
    """The subject does something, or does not."""
    action = draw_action(dice, subject)
    return Clause(subject, action, draw_tense(dice, action.verb), dice.chance(negative))


def draw_quality(dice: Dice, phrase: Phrase, adjectives: Sequence[Adjective]) -> tuple[Adjective, Action]:
    """An adjective, and to be so, or very much so."""
    adjective = dice.pick(adjectives)
    degree = dice.pick(_DEGREES) if adjective.gradable and dice.chance(0.25) else NOTHING
    return adjective, be(phrase, adjective, degree)


def draw_condition(dice: Dice, subject: Phrase, negative: float = 0.2) -> Clause:
    """How or what someone is: tall, tired, hungry, a doctor, from Lugo, in the kitchen."""
    roll = dice.pick(range(20))
    if roll < 9:
        _, action = draw_quality(dice, subject, ADJECTIVES["people" if roll < 4 else "person"])
    elif roll < 12:
        action = Action(lexicon.TER, dice.pick(lexicon.FEELINGS))
    elif roll < 15:
        english, galician = agree(dice.pick(lexicon.PROFESSIONS), subject)
        action = Action(lexicon.SER, Bilingual(f"{english}s" if subject.plural else indefinite(english), galician))
    elif roll < 18:
        action = Action(lexicon.SER, after("from", "de", dice.pick(lexicon.CITIES)))
    else:
        action = Action(lexicon.ESTAR, draw_spot(dice, NOUNS["people"][0]))
    return Clause(subject, action, dice.pick(_MOSTLY_NOW), dice.chance(negative))


# -- Sentences: what people do and are ---------------------------------------------------------------------------------


def plain(dice: Dice) -> Bilingual:
    """Yesterday Ana bought two red shirts at the market."""
    clause = draw_clause(dice, draw_person(dice))
    time = draw_time(dice, clause, 0.5)
    return sentence(join(time, statement(clause)) if dice.chance(0.3) else join(statement(clause), time))


def with_adverb(dice: Dice) -> Bilingual:
    """I never drink wine; of a state, only "also"."""
    clause = draw_clause(dice, draw_person(dice), negative=0)
    if clause.tense is PAST and clause.action.verb.aspect != "state":
        return sentence(statement(clause, dice.pick(lexicon.PAST_ADVERBS)))
    adverbs = lexicon.PRESENT_ADVERBS[-1:] if clause.action.verb.aspect == "state" else lexicon.PRESENT_ADVERBS
    return sentence(statement(clause._replace(tense=PRESENT), dice.pick(adverbs)))


def condition(dice: Dice) -> Bilingual:
    """My mother is a doctor."""
    return sentence(statement(draw_condition(dice, draw_person(dice))))


def yes_no(dice: Dice) -> Bilingual:
    """Do you eat meat every day? Is Ana tired?"""
    subject = draw_person(dice)
    clause = draw_condition(dice, subject, 0) if dice.chance(0.25) else draw_clause(dice, subject, 0)
    return sentence(join(question(clause), draw_time(dice, clause, 0.2)), "?")


def answer(dice: Dice) -> Bilingual:
    """No, I do not eat meat."""
    clause = draw_clause(dice, dice.pick(PRONOUNS), negative=0.5)
    return sentence(
        with_comma(Bilingual("no", "non") if clause.negative else Bilingual("yes", "si"), statement(clause))
    )


def likes(dice: Dice) -> Bilingual:
    """Ana likes apples. I did not like the film. Do you like to swim?"""
    subject = dice.pick(PRONOUNS) if dice.chance(0.5) else draw_named(dice)
    past, asking = False, dice.chance(0.25)
    if dice.chance(0.25):
        verb = dice.pick(lexicon.ACTIVITIES)
        liked = Phrase(Bilingual(f"to {verb.base}", words(verb.infinitive, verb.tail)))
    elif dice.chance(0.6):
        liked = in_general(draw_noun(dice, (*_EDIBLE, "pet", "livestock", "language")), article=True)
    else:
        liked, past = draw_thing(dice)[1], dice.chance(0.4)
    negative = not asking and dice.chance(0.3)
    clause = Clause(subject, Action(lexicon.LIKE, liked.text), PAST if past else PRESENT, negative)
    english = (question if asking else statement)(clause).english
    return sentence(Bilingual(english, galician_like(subject, liked, past, negative)), "?" if asking else ".")


def command(dice: Dice) -> Bilingual:
    """Open the window, please. Do not close the door! Let's wash the car."""
    (verb, text), mark = draw_object(dice, dice.pick(_LASTING)), dice.pick(".!")
    if dice.chance(0.25):
        return sentence(join(Bilingual(f"let's {verb.base}", f"imos {verb.infinitive}"), text), mark)
    if dice.chance(0.3):
        return sentence(
            join(Bilingual(f"do not {verb.base}", f"non {lexicon.prohibition(verb.infinitive)}"), text), mark
        )
    order = join(Bilingual(verb.base, conjugate(verb.infinitive, "present", HE)), text)
    return sentence(with_comma(order, Bilingual("please", "por favor")) if dice.chance(0.5) else order, mark)


def two_deeds(dice: Dice) -> Bilingual:
    """My sister opened the window and closed the door."""
    subject, tense, verbs = draw_person(dice), dice.pick((PRESENT, PAST)), dice.pick(_AKIN)
    verb = dice.pick(verbs)
    first = Clause(subject, draw_object(dice, verb), tense)
    second = Clause(subject, draw_object(dice, dice.pick([other for other in verbs if other is not verb])), tense)
    link = Bilingual("and", "e") if dice.chance(0.7) else Bilingual("and then", "e despois")
    return sentence(join(statement(first), link, predicate(second)))


def two_objects(dice: Dice) -> Bilingual:
    """We bought bread and cheese. Do you want tea or coffee? I eat meat, but I do not eat fish."""
    subject, verb = draw_person(dice), dice.pick(_CONSUMING)
    nouns = NOUNS[dice.pick([kind for kind in verb.objects if kind in _EDIBLE])]
    first = dice.pick(nouns)
    second = dice.pick([noun for noun in nouns if noun is not first])
    liked, disliked = in_general(first).text, in_general(second).text
    clause = Clause(subject, add_object(verb, liked), draw_tense(dice, verb))
    if dice.chance(0.4):
        return sentence(join(statement(clause), Bilingual("and", "e"), disliked))
    if dice.chance(0.5):
        return sentence(join(question(clause), Bilingual("or", "ou"), disliked), "?")
    contrast = Clause(repeat(subject), add_object(verb, disliked), clause.tense, negative=True)
    return sentence(with_comma(statement(clause), join(Bilingual("but", "pero"), statement(contrast))))


def because(dice: Dice) -> Bilingual:
    """Ana did not work because she was tired."""
    subject = draw_person(dice)
    action = draw_activity(dice, subject) if dice.chance(0.5) else draw_object(dice, dice.pick(_LASTING))
    tense = dice.pick((PRESENT, PAST, PAST, GOING_TO, WANT_TO, CAN))
    reason = Clause(IT, Action(lexicon.RAIN), PAST_PROGRESSIVE if tense is PAST else PROGRESSIVE)
    if dice.chance(0.8):
        states = [be(subject, adjective) for adjective in ADJECTIVES["person"] if adjective.english in _HINDRANCES]
        feelings = [Action(lexicon.TER, feeling) for feeling in lexicon.FEELINGS[2:6]]
        reason = Clause(repeat(subject), dice.pick(states + feelings), PAST if tense is PAST else PRESENT)
    main = Clause(subject, action, tense, negative=True)
    return sentence(join(statement(main), Bilingual("because", "porque"), statement(reason)))


def opinion(dice: Dice) -> Bilingual:
    """I think that your brother lives in Lugo. Nobody knows where the key is."""
    if dice.chance(0.2):
        where = Clause(draw_thing(dice)[1], Action(lexicon.ESTAR))
        english, galician = statement(where).english, question(where, Bilingual("", "onde")).galician
        return sentence(join(dice.pick(lexicon.KNOWING), Bilingual(f"where {english}", galician)))
    clause = (draw_condition if dice.chance(0.4) else draw_clause)(dice, draw_named(dice))
    return sentence(join(dice.pick(lexicon.OPINIONS), statement(clause)))


def conditional(dice: Dice) -> Bilingual:
    """If it rains tomorrow, Ana is not going to swim. When it rains, I sleep. If you want, we can eat octopus."""
    if dice.chance(0.3):
        clause = Clause(PRONOUNS[WE], draw_object(dice, dice.pick(_LASTING)), CAN)
        return sentence(with_comma(Bilingual("if you want", "se queres"), statement(clause)))
    premise, tense = dice.pick(lexicon.PREMISES), dice.pick((PRESENT, GOING_TO))
    subject = draw_person(dice)
    clause = Clause(subject, draw_activity(dice, subject), tense, dice.chance(0.3))
    if tense is GOING_TO:
        premise = join(Bilingual("if", "se"), premise, Bilingual("tomorrow", "mañá"))
    else:
        premise = join(Bilingual("when", "cando"), premise)
    return sentence(with_comma(premise, statement(clause)))


# -- Sentences: how things are -----------------------------------------------------------------------------------------


def description(dice: Dice) -> Bilingual:
    """The houses are very old. Was the soup salty? This book is long, but it is not boring."""
    noun, thing = draw_thing(dice)
    adjective, action = draw_quality(dice, thing, ADJECTIVES[noun.kind])
    clause = Clause(thing, action, dice.pick(_MOSTLY_NOW))
    others = [other for other in ADJECTIVES[noun.kind] if other.scale != adjective.scale]
    if dice.chance(0.2):
        return sentence(question(clause), "?")
    if not others or dice.chance(0.7):
        return sentence(statement(clause._replace(negative=dice.chance(0.15))))
    it = thing._replace(text=Bilingual("they" if thing.plural else "it", ""))
    more = Clause(it, draw_quality(dice, thing, others)[1], clause.tense, dice.chance(0.5))
    return sentence(with_comma(statement(clause), join(Bilingual("but", "pero"), statement(more))))


def location(dice: Dice) -> Bilingual:
    """The keys are under the bed."""
    noun, thing = draw_thing(dice, [kind for kind in lexicon.SPOTS if kind != "family"], qualified=0.2)
    return sentence(statement(Clause(thing, Action(lexicon.ESTAR, draw_spot(dice, noun)), dice.pick(_MOSTLY_NOW))))


def existence(dice: Dice) -> Bilingual:
    """There are two dogs in the garden. There is no milk in the kitchen. Was there a wolf near the house?"""
    noun = draw_noun(dice, [kind for kind in lexicon.SPOTS if kind != "family"])
    spot = draw_spot(dice, noun)
    if dice.chance(0.15):
        none = in_general(noun)
        return sentence(join(Bilingual("there are no" if none.plural else "there is no", "non hai"), none.text, spot))
    phrase = draw_phrase(dice, noun, _INDEFINITE if noun.countable else (lexicon.BARE_MASS,), qualified=0.2)
    be_, haber = (_WAS, "había") if dice.chance(0.2) else (_BE, "hai")
    if not phrase.plural and dice.chance(0.3):
        return sentence(join(Bilingual(f"{be_[phrase.person]} there", haber), phrase.text, spot), "?")
    return sentence(join(Bilingual(f"there {be_[phrase.person]}", haber), phrase.text, spot))


def presentation(dice: Dice) -> Bilingual:
    """This is my sister. Those are not Ana's shoes."""
    noun = draw_noun(dice, ("family", "family", "garment", "item", "device", "text", "vehicle", "pet", "container"))
    phrase = draw_phrase(dice, noun, (draw_owner(dice),) if dice.chance(0.4) else lexicon.POSSESSIVES)
    pointer = dice.pick((lexicon.THIS, lexicon.THAT))
    form = Bilingual(pointer.english[phrase.plural], pointer.forms[2 * phrase.plural + phrase.feminine])
    action = Action(lexicon.SER, phrase.text)
    return sentence(statement(Clause(phrase._replace(text=form), action, PRESENT, dice.chance(0.15))))


def comparison(dice: Dice) -> Bilingual:
    """My brother is as tall as Ana."""
    subject, other = draw_relative(dice), (draw_name if dice.chance(0.5) else draw_relative)(dice)
    adjective = dice.pick([adjective for adjective in ADJECTIVES["people"] if adjective.gradable])
    text = join(Bilingual("as", "tan"), agree(adjective, subject), Bilingual("as", "coma"), other.text)
    return sentence(statement(Clause(subject, Action(lexicon.SER, text), dice.pick(_MOSTLY_NOW), dice.chance(0.3))))


def weather(dice: Dice) -> Bilingual:
    """It rained in Lugo yesterday. It was cold in Paris."""
    if dice.chance(0.4):
        clause = Clause(IT, Action(lexicon.IR, dice.pick(lexicon.WEATHER)), dice.pick(_MOSTLY_NOW))
    else:
        tense = dice.pick((PRESENT, PAST, GOING_TO, WILL, PROGRESSIVE))
        clause = Clause(IT, Action(dice.pick((lexicon.RAIN, lexicon.SNOW))), tense)
    place = in_city(dice) if dice.chance(0.6) else NOTHING
    return sentence(join(statement(clause), place, draw_time(dice, clause, 0.6)))


def numbers(dice: Dice) -> Bilingual:
    """It is three o'clock. Ana is ten years old. The train leaves at five o'clock. The shirts cost twenty euros."""
    count = lexicon.number(dice.pick(range(2, 100)))
    if dice.chance(0.1):
        time = dice.pick(_HOURS)
        return sentence(join(Bilingual("it is", "é" if time.galician.startswith("a ") else "son"), time))
    if dice.chance(0.3):
        age = Action(lexicon.TER, join(count, Bilingual("years old", "anos")))
        return sentence(statement(Clause(draw_name(dice) if dice.chance(0.5) else dice.pick(PRONOUNS), age)))
    if dice.chance(0.3):
        phrase = draw_phrase(dice, draw_noun(dice, ("transit",)), _DEMONSTRATIVES)
        return sentence(join(statement(Clause(phrase, Action(dice.pick(lexicon.DEPARTING)))), dice.pick(_AT_HOUR)))
    _, thing = draw_thing(dice, ("garment", "text", "item", "device"), qualified=0.3)
    return sentence(statement(Clause(thing, Action(lexicon.COST, join(count, Bilingual("euros", "euros"))))))


def creature(dice: Dice) -> Bilingual:
    """Two cats are sleeping under the table."""
    noun, verb = draw_noun(dice, ("pet", "livestock")), dice.pick(lexicon.CREATURE_VERBS)
    action = Action(verb, join(Bilingual("", verb.tail), draw_spot(dice, noun) if dice.chance(0.8) else NOTHING))
    tense = dice.pick((PRESENT, PAST, PROGRESSIVE, PROGRESSIVE, PAST_PROGRESSIVE))
    return sentence(statement(Clause(draw_phrase(dice, noun, qualified=0.25), action, tense)))


def known_person(dice: Dice) -> Bilingual:
    """The woman who lives in Lugo is a doctor."""
    person = draw_phrase(dice, dice.pick(NOUNS["people"]), (lexicon.THE,))
    deed = predicate(draw_clause(dice, person, negative=0.1))
    main = draw_condition(dice, person, negative=0.1)
    return sentence(join(person.text, Bilingual("who", "que"), deed, predicate(main)))


def known_thing(dice: Dice) -> Bilingual:
    """The book that Ana bought yesterday was interesting."""
    verb = dice.pick([verb for verb in _LASTING if not verb.tail])
    noun = draw_noun(dice, verb.objects)
    lasting = [word for word in ADJECTIVES.get(noun.kind, ()) if word.copula == "ser"]
    if not lasting:
        return known_thing(dice)
    thing = draw_phrase(dice, noun, (lexicon.THE,))
    clause = Clause(dice.pick(PRONOUNS) if dice.chance(0.5) else draw_named(dice), Action(verb), PAST)
    deed = join(statement(clause), draw_time(dice, clause, 0.4))
    main = Clause(thing, draw_quality(dice, thing, lasting)[1], PAST)
    return sentence(join(thing.text, Bilingual("that", "que"), deed, predicate(main)))


# -- Sentences: questions and set phrases ------------------------------------------------------------------------------


def where_when_why(dice: Dice) -> Bilingual:
    """Where did your father buy the car? Why do you not eat meat?"""
    asked = dice.pick(lexicon.QUESTION_WORDS)
    verb = dice.pick([verb for verb in (*_LASTING, *lexicon.ACTIVITIES) if verb.places or asked.english != "where"])
    action = draw_object(dice, verb) if verb.objects else Action(verb, Bilingual("", verb.tail))
    negative = asked.english == "why" and dice.chance(0.4)
    return sentence(question(Clause(draw_person(dice), action, draw_tense(dice, verb), negative), asked), "?")


def what(dice: Dice) -> Bilingual:
    """What are you eating? How many apples did Ana eat? Which shirt does he prefer?"""
    verb = dice.pick([verb for verb in lexicon.TRANSITIVES if verb.objects[0] in lexicon.THINGS and not verb.tail])
    noun, asked = draw_noun(dice, verb.objects), Bilingual("what", "que")
    if noun.countable and dice.chance(0.7):
        determiner = dice.pick((lexicon.HOW_MANY, lexicon.WHICH))
        asked = draw_phrase(dice, noun, (determiner,)).text
    clause = Clause(draw_person(dice), Action(verb, draw_place(dice, verb, 0.2)), draw_tense(dice, verb))
    return sentence(question(clause, asked), "?")


def who(dice: Dice) -> Bilingual:
    """Who opened the door?"""
    return sentence(statement(draw_clause(dice, Phrase(Bilingual("who", "quen")), negative=0.1)), "?")


_ASKED_OF_PERSONS = (
    (Bilingual("how", "como"), Action(lexicon.ESTAR)),
    (Bilingual("where", "onde"), Action(lexicon.ESTAR)),
    (Bilingual("how old", "cantos anos"), Action(lexicon.TER)),
    (Bilingual("where", "de onde"), Action(lexicon.SER, Bilingual("from", ""))),
)
_ASKED_OF_THINGS = (
    (Bilingual("where", "onde"), Action(lexicon.ESTAR), _DEFINITE),
    (Bilingual("whose", "de quen"), Action(lexicon.SER), _DEMONSTRATIVES),
    (Bilingual("how much", "canto"), Action(lexicon.COST), _DEFINITE),
)


def how_and_whose(dice: Dice) -> Bilingual:
    """How is your mother? How old is Ana? Where is the red house? Whose are these keys?"""
    if dice.chance(0.4):
        asked, action = dice.pick(_ASKED_OF_PERSONS)
        return sentence(question(Clause(draw_person(dice), action), asked), "?")
    asked, action, determiners = dice.pick(_ASKED_OF_THINGS)
    noun = draw_noun(dice, ("garment", "item", "device", "vehicle", "furniture", "container", "house"))
    return sentence(question(Clause(draw_phrase(dice, noun, determiners, qualified=0.3), action), asked), "?")


def set_phrase(dice: Dice) -> Bilingual:
    """Good morning, Ana! My sister's name is Iria. Thank you for the coffee. I am sorry."""
    roll = dice.pick(range(4))
    if roll == 0:
        return dice.pick(lexicon.FIXED_PHRASES)
    if roll == 1:
        greeting = dice.pick(lexicon.GREETINGS)
        return sentence(with_comma(greeting, draw_name(dice).text) if dice.chance(0.7) else greeting, "!")
    if roll == 2:
        gift = draw_noun(dice, (*_EDIBLE, "item", "text"))
        return sentence(after("thank you for", "grazas por", draw_phrase(dice, gift, _DEMONSTRATIVES).text))
    noun = dice.pick(NOUNS["family"])
    relative, name = noun_phrase(noun, dice.pick(lexicon.POSSESSIVES)).text, dice.pick(lexicon.NAMES[noun.feminine])
    return sentence(Bilingual(f"{relative.english}'s name is {name}", f"{relative.galician} chámase {name}"))


# Every construction, as often as it should be drawn.
CONSTRUCTIONS = (
    *[plain] * 14, *[with_adverb] * 4, *[condition] * 5, *[yes_no] * 6, *[answer] * 2, *[likes] * 5, *[command] * 5,
    *[two_deeds] * 4, *[two_objects] * 3, *[because] * 4, *[opinion] * 5, *[conditional] * 3, *[description] * 6,
    *[location] * 3, *[existence] * 4, *[presentation] * 2, *[comparison] * 2, weather, *[numbers] * 2, *[creature] * 3,
    *[known_person] * 3, *[known_thing] * 3, *[where_when_why] * 5, *[what] * 4, *[who] * 3, *[how_and_whose] * 3,
    *[set_phrase] * 2,
)  # fmt: skip


def draw_sentence(dice: Dice) -> Bilingual:
    """A sentence of some construction."""
    return dice.pick(CONSTRUCTIONS)(dice)
