import pytest

from regard.text.split import place


@pytest.mark.parametrize(
    ("one", "twin"),
    [
        ("Restart the device", "restart the device."),
        ("Delete 3 items?", "Delete 15 items"),
        ("Hello,   world", "HELLO world!"),
        ("Zone {zone_1}", "zone {zone_2}"),
    ],
)
def test_near_twins_fall_on_the_same_side(one: str, twin: str) -> None:
    assert place(one, salt="x") == place(twin, salt="x")


def test_different_texts_and_salts_fall_apart() -> None:
    assert place("Restart the device", salt="x") != place("Restart the devices", salt="x")
    assert place("Restart the device", salt="x") != place("Restart the device", salt="y")
    assert place("???", salt="x") != place("!!!", salt="x")


def test_places_are_even_over_all_texts() -> None:
    texts = [f"{chr(97 + one)}{chr(97 + two)} {chr(97 + three)}" for one in range(26)
             for two in range(26) for three in range(10)]  # fmt: skip
    places = [place(text, salt="valid") for text in texts]
    assert 0.085 < sum(each < 0.1 for each in places) / len(texts) < 0.115
    assert all(0 <= each < 1 for each in places)


def test_the_split_is_the_same_on_every_machine() -> None:
    assert place("Turn on the light", salt="demo") == 0.5857675351574476
