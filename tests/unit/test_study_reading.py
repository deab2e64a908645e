"""The digest of the code that makes figures."""

import ast

import pytest

from fastsync_lab.studies import studies
from fastsync_lab.study.reading import code_of, reached, reading_digest

MODULE = '''
"""Of a study."""
FACTOR, OTHER = 10, 2  # of what is read

def scaled(value):
    """In units."""
    return value * FACTOR

def shown(values):
    return [OTHER for _ in values]

def read(cell, output):
    # comment
    return {"": scaled(output)}

STUDY = Study(read=read, title="a")
'''


def digest(text: str) -> str:
    return code_of(reached(ast.parse(text), "read"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value * FACTOR", "value + FACTOR"),
        ("FACTOR, OTHER = 10", "FACTOR, OTHER = 11"),
        ("scaled(output)", "output"),
    ],
)
def test_another_formula_is_another_digest(old: str, new: str) -> None:
    assert old in MODULE
    assert digest(MODULE.replace(old, new)) != digest(MODULE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("In units.", "In other words."),
        ("# comment", "# another one"),
        ("[OTHER for", "[3 for"),
        ('title="a"', 'title="b"'),
        ("def shown", "\n\ndef shown"),
    ],
)
def test_words_tables_and_requirements_are_not_in_it(old: str, new: str) -> None:
    assert old in MODULE
    assert digest(MODULE.replace(old, new)) == digest(MODULE)


def test_each_study_has_one() -> None:
    digests = {name: reading_digest(one.read) for name, one in studies().items()}
    assert all(len(one) == 16 for one in digests.values())
    assert digests["overwrite"] == digests["interval"] != digests["neighbour"]
