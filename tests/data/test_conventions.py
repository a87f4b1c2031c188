from __future__ import annotations

from itertools import product

import pytest

from qknorm.data.conventions import Convention

RAW = ["He said: \"It's so & so\", didn't he?", "Yes, he did."]
FORMS = {
    Convention(): RAW,
    Convention(is_escaped=True): ["He said: &quot;It&apos;s so &amp; so&quot;, didn&apos;t he?", "Yes, he did."],
    Convention(is_tokenized=True): ["He said : \" It 's so & so \" , didn 't he ?", "Yes , he did ."],
    Convention(True, True): ["He said : &quot; It &apos;s so &amp; so &quot; , didn &apos;t he ?", "Yes , he did ."],
}


@pytest.mark.parametrize("convention", FORMS)
def test_a_convention_is_told_by_the_text(convention: Convention) -> None:
    assert Convention.of(FORMS[convention]) == convention


@pytest.mark.parametrize(("now", "wanted"), list(product(FORMS, FORMS)))
def test_text_of_one_convention_is_written_in_another(now: Convention, wanted: Convention) -> None:
    """Escapes are resolved, or made where one's own tokens have them; nothing else differs."""
    became = list(wanted.of_others(FORMS[now], now, "en"))
    plain = Convention(wanted.is_tokenized)
    assert became == (FORMS[wanted] if wanted.is_tokenized or now == wanted else FORMS[plain])
