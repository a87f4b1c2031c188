from __future__ import annotations

import gzip
from pathlib import Path

import polib
import pytest

from qknorm.data.importers import Pair, codes_left_out, read_aligned, read_memory
from qknorm.data.textfiles import write_lines
from qknorm.errors import InputError

TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="EN-GB"><seg>The <hi>red</hi> house
 is big.</seg></tuv><tuv xml:lang="gl"><seg>A casa vermella é grande.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Only English.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Press <bpt i="1">&lt;b&gt;</bpt>Save<ept i="1">&lt;/b&gt;</ept> now.</seg></tuv>
<tuv xml:lang="gl"><seg>Preme <ph>{\\f1}</ph>Gardar agora.</seg></tuv></tu>
<tu><tuv lang="en"><seg>A &amp; B</seg></tuv><tuv lang="gl"><seg>A e B</seg></tuv>
<tuv lang="fr"><seg>A et B</seg></tuv></tu>
</body></tmx>
"""

PO = r"""
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

msgid "Open file"
msgstr "Abrir ficheiro"

#, fuzzy
msgid "Close"
msgstr "Pechar?"

msgid "Untranslated"
msgstr ""

msgid "%d house"
msgid_plural "%d houses"
msgstr[0] "%d casa"
msgstr[1] "%d casas"

msgid "two\nlines"
msgstr "dúas\nliñas"

#~ msgid "Old"
#~ msgstr "Vello"
"""

CATALOGUE = polib.POFile()
CATALOGUE.append(polib.POEntry(msgid="Open file", msgstr="Abrir ficheiro"))


def memory(path: Path) -> list[Pair]:
    return list(read_memory(path, "en", "gl"))


class TestAligned:
    def test_lines_are_paired_and_blank_ones_kept(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "en", ["one", "", "three"])
        write_lines(tmp_path / "gl", ["un", "dous", ""])
        assert list(read_aligned(tmp_path / "en", tmp_path / "gl")) == [("one", "un"), ("", "dous"), ("three", "")]

    @pytest.mark.parametrize("lost", [1, 3])
    def test_unequal_counts_show_where_the_files_part(self, tmp_path: Path, lost: int) -> None:
        source = [f"Sentence number {i} with{' more' * (i * 7 % 11)} words" for i in range(200)]
        target = [f"Frase número {i} con{' máis' * (i * 7 % 11)} palabras" for i in range(200)]
        del target[120 : 120 + lost]
        write_lines(tmp_path / "a.en", source)
        write_lines(tmp_path / "a.gl", target)
        expected = (
            rf"a\.en has 200 lines and .*a\.gl has {200 - lost}; .*a\.gl seems to lack {lost} before its line 121"
        )
        with pytest.raises(InputError, match=expected):
            list(read_aligned(tmp_path / "a.en", tmp_path / "a.gl"))
        with pytest.raises(InputError, match=rf"a\.gl seems to lack {lost} before its line 121"):
            list(read_aligned(tmp_path / "a.gl", tmp_path / "a.en"))
        write_lines(tmp_path / "a.gl", target[: 120 - lost])
        write_lines(tmp_path / "a.en", source[:120])
        with pytest.raises(InputError, match=rf"a\.gl seems to lack {lost} at its end"):
            list(read_aligned(tmp_path / "a.en", tmp_path / "a.gl"))
        write_lines(tmp_path / "a.gl", [])
        with pytest.raises(InputError, match=r"a\.en has 120 lines and .*gl has 0"):
            list(read_aligned(tmp_path / "a.en", tmp_path / "a.gl"))


@pytest.mark.parametrize("packed", [False, True])
class TestFormats:
    def write(self, folder: Path, name: str, content: str | bytes, packed: bool) -> Path:
        raw = content.encode() if isinstance(content, str) else content
        path = folder / (name + ".gz" if packed else name)
        path.write_bytes(gzip.compress(raw) if packed else raw)
        return path

    def test_tsv(self, tmp_path: Path, packed: bool) -> None:
        path = self.write(tmp_path, "m.tsv", 'one\tun\tignored\r\n"two\tdous\n', packed)
        assert memory(path) == [("one", "un"), ('"two', "dous")]

    def test_jsonl(self, tmp_path: Path, packed: bool) -> None:
        text = '{"en": "one", "gl": "un"}\n\n{"translation": {"en": "a\\nb", "gl": "c\\u2028d"}, "id": 1}\n'
        assert memory(self.write(tmp_path, "m.jsonl", text, packed)) == [("one", "un"), ("a b", "c\u2028d")]

    def test_placeholders_in_native_codes_are_kept_and_the_others_counted(self, tmp_path: Path, packed: bool) -> None:
        source = 'Delete <ph>%s</ph> <bpt i="1">{\\b </bpt>now<ept i="1">}</ept><it pos="begin">&lt;br/&gt;</it>?<ph/>'
        content = f"""<tmx version="1.4"><body><tu><tuv xml:lang="en"><seg>{source}</seg></tuv>
<tuv xml:lang="gl"><seg>Borrar <ph>%s</ph>?</seg></tuv></tu></body></tmx>"""
        path = self.write(tmp_path, "m.tmx", content, packed)
        assert memory(path) == [("Delete %s now<br/>?", "Borrar %s?")]
        assert codes_left_out(path) == 3
        assert codes_left_out(self.write(tmp_path, "m.tsv", "<ph>\tb\n", packed)) == 0

    def test_tmx(self, tmp_path: Path, packed: bool) -> None:
        assert memory(self.write(tmp_path, "m.tmx", TMX, packed)) == [
            ("The red house  is big.", "A casa vermella é grande."),
            ("Press <b>Save</b> now.", "Preme Gardar agora."),
            ("A & B", "A e B"),
        ]

    def test_tmx_with_several_translations_of_a_unit(self, tmp_path: Path, packed: bool) -> None:
        words = (("en", "yes"), ("gl", "si"), ("gl", "claro"), ("pt", "sim"))
        unit = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in words)
        path = self.write(tmp_path, "m.tmx", f"<tmx><body><tu>{unit}</tu></body></tmx>", packed)
        assert memory(path) == [("yes", "si"), ("yes", "claro")]

    def test_po_leaves_out_fuzzy_obsolete_and_untranslated(self, tmp_path: Path, packed: bool) -> None:
        assert memory(self.write(tmp_path, "m.po", PO, packed)) == [
            ("Open file", "Abrir ficheiro"),
            ("%d house", "%d casa"),
            ("%d houses", "%d casas"),
            ("two lines", "dúas liñas"),
        ]

    def test_mo(self, tmp_path: Path, packed: bool) -> None:
        assert memory(self.write(tmp_path, "m.mo", CATALOGUE.to_binary(), packed)) == [("Open file", "Abrir ficheiro")]


def entity(definition: str) -> bytes:
    return f"""<!DOCTYPE tmx [<!ENTITY x {definition}>]><tmx><body><tu>
    <tuv xml:lang="en"><seg>&x;</seg></tuv><tuv xml:lang="gl"><seg>b</seg></tuv></tu></body></tmx>""".encode()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.tsv", b"a\tb\nno tab\n", "line 2: there is no tab"),
        ("m.jsonl", b'{"en": "a", "gl": "b"}\n{"en": \n', "line 2: not JSON"),
        ("m.jsonl", b'{"en": "a"}\n', 'no text under the key "gl"'),
        ("m.jsonl", b"[1]\n", 'no text under the key "en"'),
        ("m.jsonl", b'{"translation": 3}\n', 'no text under the key "en"'),
        ("m.jsonl", b'{"en": "\\ud800", "gl": "b"}\n', "half a character"),
        ("m.jsonl", b"[" * 100_000 + b"\n", "nested too deeply"),
        ("m.tmx", entity('SYSTEM "file:///etc/hostname"'), "refused, since it defines an XML entity"),
        ("m.tmx", entity('"aaaa"> <!ENTITY bomb "&x;&x;&x;"'), "refused"),
        ("m.tmx", TMX.encode()[:300], "not well-formed XML"),
        ("m.tmx", b'<?xml version="1.0" encoding="klingon"?><tmx/>', "not well-formed XML"),
        ("m.tmx", TMX.replace('"gl"', '"pt"').encode(), "no unit has both en and gl.*en-gb.*pt"),
        ("m.po", b'msgid "a"\nmsgstring "b"\n', r"m\.po: not a gettext PO file: .*line 2"),
        ("m.mo", b"nonsense", "not a gettext MO file"),
        # Within the header of such a file, and within its tables.
        *(("m.mo", CATALOGUE.to_binary()[:length], "not a gettext MO file") for length in (4, 11, 18, 25, 30)),
        ("m.tmx.gz", gzip.compress(TMX.encode())[:-10], "damaged gzip"),
        ("m.po.gz", gzip.compress(PO.encode())[:-10], "damaged gzip"),
        ("m.docx", b"", "known endings: tsv, jsonl, tmx, po, mo"),
    ],
)
def test_a_bad_memory_is_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        memory(tmp_path / name)
