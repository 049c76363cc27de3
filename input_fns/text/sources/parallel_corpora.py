"""Finds parallel corpora as WMT and OPUS publish them, and the split of each.

    train.en[.gz], train.de                                two files, aligned by line
    Books.de-en.en, Books.de-en.de                         OPUS, also in their .zip
    training/europarl-v7.de-en.de, dev/newstest2013.en     WMT
    newstest2014-deen-src.en.sgm, ...-ref.de.sgm           test sets of WMT, <seg> of SGML
    news-commentary-v15.de-en.tsv.gz, en-de.txt.gz         two columns in the order of the name

Folders are those of --source whose names have a split. The split of a corpus is, by the first rule
that applies,

    1. "train" in a folder such as training/
    2. that of a word of its name, such as dev, newsdev, test or newstest; of several newstestYEAR
       the newest is "test", and the one before it "validation" if there is no other
    3. "train" if its name ends in the pair of languages
    4. that of its folder; beside newstestYEAR, the other sets in folders are left out
    5. "train" if no corpus has a split
"""

from __future__ import annotations

import dataclasses
import os
import re

from common import folders
from input_fns import DataError
from input_fns.convert import split_names
from input_fns.convert.archives import SourceTree
from input_fns.convert.files import note, split_packed
from input_fns.convert.options import Options
from input_fns.convert.split_names import given_files, is_document, split_in

LINES, SGML, COLUMNS = "lines", "sgml", "columns"
_PAIR = re.compile(r"(?:^|\.)([a-z]{2,3}(?:_[a-z]+)?)-([a-z]{2,3}(?:_[a-z]+)?)(?:\.|$)")
_TABLE = re.compile(r"(?P<stem>.*)\.(tsv|txt)", re.IGNORECASE)
_NEWS = re.compile(r"newstest(?P<year>\d{4})(?:-(?P<direction>[a-z]{4}))?")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Two aligned texts.

    Attributes:
      name: path below --source without language and extension.
      paths: of the source and of the target; of `COLUMNS` twice the table.
      form: `LINES`, `SGML` or `COLUMNS`.
      columns: of `COLUMNS`, those of the source and of the target.
    """

    name: str
    paths: tuple[str, str]
    form: str = LINES
    columns: tuple[int, int] = (0, 1)

    @property
    def stem(self) -> str:
        """The name without folders."""
        return os.path.basename(self.name)

    @property
    def folder(self) -> str:
        """Its folder below --source, or ""."""
        return os.path.dirname(self.name)


def find(options: Options, tree: SourceTree) -> list[Corpus]:
    """Returns the corpora of `options.languages`, sorted by name.

    Raises:
      DataError: there is none, one lacks a language, or two files have one name.
    """
    found: dict[tuple[str, str], dict[int, str]] = {}  # {(name, form): {0 or 1: path}}
    columns: dict[str, tuple[int, int]] = {}
    for folder, name, path in _files(options, tree):
        form, stem, side, is_source = _parsed(split_packed(name)[0], options.languages)
        if not form:
            continue
        stem = os.path.join(folder, stem)
        sides = found.setdefault((stem, form), {})
        if form == COLUMNS:
            columns[stem] = (side, 1 - side)
        if form == SGML:  # a language may be there as the source and as the reference
            if is_source == (side == 0) or side not in sides:
                sides[side] = path
        elif side in sides:
            raise DataError(
                f"{options.source} has both {os.path.basename(sides[side])} and {name}. Leave one "
                "out with --skip"
            )
        else:
            sides.update({0: path, 1: path} if form == COLUMNS else {side: path})
    corpora = [
        Corpus(name, (sides[0], sides[1]), form, columns.get(name, (0, 1)))
        for (name, form), sides in found.items()
        # WMT has some test sets in both forms.
        if len(sides) == 2 and not (form == SGML and len(found.get((name, LINES), ())) == 2)
    ]
    _require_both(options, found, corpora)
    return sorted(corpora, key=lambda corpus: corpus.name)


def _files(options, tree):
    """Yields folder, name and path of the files in --source and in its folders of splits."""
    source = options.source
    if folders.is_file(source) and not tree.is_folder(source):
        yield "", os.path.basename(source), source
        return
    inside = [n for n in tree.names(source) if split_in(n) and tree.is_folder(f"{source}/{n}")]
    for folder in ("", *inside):
        for name in tree.names(os.path.join(source, folder) if folder else source):
            path = os.path.join(source, folder, name)
            if not is_document(name) and not tree.is_folder(path):
                yield folder, name, path


def _parsed(name, languages):
    """Returns form, stem, side (0: source) and whether it is a source; form "" of other files."""
    lower, wanted = name.lower(), [language.lower() for language in languages]
    pair = _pair_of(lower)
    if pair and set(pair) != set(wanted):
        return "", "", 0, False
    for side, language in enumerate(wanted):
        sgml = re.fullmatch(rf"(.+)-(src|ref)\.{re.escape(language)}\.sgm", lower)
        if sgml:
            return SGML, name[: sgml.end(1)], side, sgml[2] == "src"
        if lower.endswith(f".{language}") and len(name) > len(language) + 1:
            return LINES, name[: -len(language) - 1], side, True
    table = _TABLE.fullmatch(name)
    if pair and table and _pair_of(table["stem"].lower()):
        return COLUMNS, table["stem"], pair.index(wanted[0]), True
    return "", "", 0, False


def _pair_of(name):
    found = _PAIR.search(name)
    return found.groups() if found else None


def _require_both(options, found, corpora):
    """Checks that there is a corpus, and that those beside it have both languages."""
    there = {side for sides in found.values() for side in sides}
    missing = [language for i, language in enumerate(options.languages) if i not in there]
    names = [name for name in folders.names(options.source) if name.endswith((".tgz", ".tar.gz"))]
    if missing and names:
        raise DataError(
            f"--source={options.source} has no text in {missing[0]}. Unpack its archives, such as "
            f"with tar -xzf {names[0]}"
        )
    for language in missing:
        split_names.named_files(options, (f".{language.lower()}",))  # says what is there
    complete = {corpus.name for corpus in corpora}
    alone = [
        name
        for (name, form), sides in found.items()
        # The folders of WMT have sets of other languages.
        if len(sides) == 1 and name not in complete and form == LINES and not os.path.dirname(name)
    ]
    if alone or not corpora:
        name = min(alone or [name for name, _ in found] or [""])
        raise DataError(
            f"--source={options.source}: '{name}' is in only one of the languages. Add the other, "
            "or leave it out with --skip"
        )


def by_split(corpora: list[Corpus], options: Options) -> dict[str, list[Corpus]]:
    """Returns the corpora of each split; prints those of "train" in their order, if several.

    Raises:
      DataError: two corpora are of one split, or the name of one beside others has none.
    """
    if options.split_files:
        return _given(corpora, options)
    if not any(split_in(corpus.stem) or corpus.folder for corpus in corpora):
        if len(corpora) > 1:
            note(f"'train' is all of {_listed(corpora)}: no name has a split")
        return {"train": corpora}
    train, others = [], []
    for corpus in corpora:
        is_named = split_in(corpus.stem) or not _pair_of(corpus.stem.lower())
        (others if is_named and split_in(corpus.folder) != "train" else train).append(corpus)
    named = _named(others, options)
    corpus_of = {corpus.paths[0]: corpus for corpus in others}
    paths = {name: corpus.paths[0] for name, corpus in named.items()}
    found = {s: [corpus_of[p]] for s, p in split_names.by_split(paths, options).items()}
    train = found.pop("train", []) + train
    if len(train) > 1:
        note(f"'train' is {_listed(train)}")
    return {"train": train, **found} if train else found


def _named(corpora, options):
    """Returns `{name with a split: corpus}` of corpora, without those that are left out."""
    news: dict[str, list[Corpus]] = {}
    for corpus in corpora:
        match = _NEWS.fullmatch(corpus.stem)
        if match:
            news.setdefault(match["year"], []).append(corpus)
    years, named, left_out = sorted(news, reverse=True), {}, []
    if len(years) > 1:
        named["test"] = _best(news[years[0]], options)
        if not any(_is_validation(corpus) for corpus in corpora):
            named["validation"] = _best(news[years[1]], options)
    for corpus in corpora:
        name = corpus.stem
        match = _NEWS.fullmatch(name)
        if match:
            is_other = corpus != _best(news[match["year"]], options)
            is_older = corpus.folder and len(years) > 1
        else:
            is_other, is_older = False, corpus.folder and news and not _is_validation(corpus)
        if corpus in named.values():
            continue
        if is_other or is_older:
            left_out.append(corpus)
            continue
        if not split_in(name) and corpus.folder:
            name = f"{name}_{split_in(corpus.folder)}"
        if name in named:
            raise DataError(
                f"{options.source} has both {named[name].name} and {corpus.name}. Leave one out "
                "with --skip"
            )
        named[name] = corpus
    if left_out:
        note(f"left out: {_listed(left_out)}. Choose others with --split_files")
    return named


def _is_validation(corpus):
    """Whether a corpus is one to validate on: newsdevYEAR, or by its name outside of folders."""
    is_named = split_in(corpus.stem) == "validation"
    return is_named and (not corpus.folder or corpus.stem.startswith("newsdev"))


def _best(corpora, options):
    """Returns the test set of a year that was translated in the direction of --languages."""
    direction = "".join(options.languages).lower()
    return max(corpora, key=lambda corpus: _NEWS.fullmatch(corpus.stem)["direction"] == direction)


def _given(corpora, options):
    """Returns the corpora that --split_files names."""
    by_name = {}
    for corpus in corpora:
        for name in (os.path.join(options.source, corpus.name), *corpus.paths):
            by_name[name] = corpus
    given = given_files(options)
    for path in given.values():
        if path not in by_name:
            raise DataError(f"--split_files: {path} is not a file in both languages")
    return {split: [by_name[path]] for split, path in given.items()}


def _listed(corpora):
    return ", ".join(corpus.name for corpus in corpora)
