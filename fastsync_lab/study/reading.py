"""A digest of the code that turns what a run has printed and asked of the device into figures.

Words do not count: comments, docstrings and layout may change, and figures stay what they are.
"""

import ast
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fastsync_lab.machine import trace
from fastsync_lab.study import fio, output

SHARED = (trace, output, fio)  # of all studies


def reading_digest(read: Callable[..., Any]) -> str:
    """A hash of what all studies read with, and of what `read` needs of its own module."""
    own = inspect.getsourcefile(read)
    if own is None:
        raise ValueError(f"{read} has no source")
    parts = [
        *map(_shared, SHARED),
        code_of(reached(ast.parse(Path(own).read_text()), read.__name__)),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@cache
def _shared(module: Any) -> str:
    """The code of a whole module."""
    return code_of([ast.parse(inspect.getsource(module))])


def reached(module: ast.Module, start: str) -> list[ast.stmt]:
    """The definitions of a module that the one named `start` leads to, in the module's order."""
    of = {name: statement for statement in module.body for name in defined(statement)}
    found: set[str] = set()
    to_do = {start}
    while to_do:
        name = to_do.pop()
        found.add(name)
        used = {node.id for node in ast.walk(of[name]) if isinstance(node, ast.Name)}
        to_do |= (used & of.keys()) - found
    return [statement for statement in module.body if found & set(defined(statement))]


def defined(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module gives to something of its own."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def code_of(nodes: Iterable[ast.AST]) -> str:
    """Code without the words in it."""
    texts = []
    for node in nodes:
        for one in ast.walk(node):
            body = getattr(one, "body", None)
            if isinstance(body, list):
                one.body = [x for x in body if not _is_text(x)]  # type: ignore[attr-defined]
        texts.append(ast.dump(node))
    return "\n".join(texts)


def _is_text(statement: ast.AST) -> bool:
    """Whether a statement is nothing but a string: a docstring."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
