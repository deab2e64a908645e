"""How documents say whether a result is of what this tree has now."""

OF_THIS_TREE, OLDER = "of this tree", "older than this tree's"


def age(then: str | None, now: str) -> str:
    """What a result is of, from a digest that it names (None or "": none) and that of now."""
    return OF_THIS_TREE if then == now else OLDER
