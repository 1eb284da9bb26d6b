"""The types of a target's settings; what its class refuses is in tests/config."""

from trainkit.training.instantiate import type_complaints


def test_what_is_neither_a_number_nor_a_truth_value_is_the_classes_own_matter():
    def takes(some: int | None, either: int | str, late: int = None) -> None: ...  # noqa: RUF013

    def unread(later: "Nowhere") -> None: ...  # noqa: F821

    given = {"some": None, "either": "a", "late": None, "later": "a", "kind": {"_target_": "a"}}
    assert type_complaints("model", takes, given) == type_complaints("model", unread, given) == []


def test_an_inherited_setting_is_checked_too():
    class Base:
        def __init__(self, width: int, deep: bool = False): ...

    class Child(Base):
        def __init__(self, *, scale: float = 1.0, **others: int): ...

    assert type_complaints("model", Child, {"width": 3, "scale": 2, "deep": True}) == []
    assert type_complaints("model", Child, {"width": "a", "scale": True, "deep": 1}) == [
        "model.width = a: expected a whole number",
        "model.deep = 1: expected true or false; try model.deep=false",
        "model.scale = True: expected a number; try model.scale=1.0",
    ]
