"""What soaks have found, played by hand."""

from __future__ import annotations

from pathlib import Path

from coldtrail.stage.rebuild import differences, rebuild
from world_of import World


def test_a_log_that_was_gone_before_a_byte_of_it_was_held_is_the_same_in_a_catalog_made_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(world.main(), b'{"type":"us')
    world.scan()
    world.main().unlink()
    world.scan()
    with world.open() as home:
        assert differences(home) == ([], [])
        (before,) = home.catalog.all_streams()
        rebuild(home)
        (after,) = home.catalog.all_streams()
    assert (before.held, before.head, before.window) == (after.held, after.head, after.window) == (0, b"", b"")
