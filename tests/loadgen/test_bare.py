"""The yardstick is right: timelines kept up by hand are the timelines computed anew."""

from loadgen.bare import BareTwip
from loadgen.world import World, fill_bare, post_key
from pequod import prefix


def small_world() -> tuple[World, BareTwip]:
    world, bare = World.of_rows(5_000, seed=1), BareTwip()
    fill_bare(bare, world.base_pairs(), world.users())
    return world, bare


def test_a_live_timeline_is_what_a_first_scan_gives():
    world, bare = small_world()
    poster, late, reader = world.communities[0][:3]
    bare.put_post(post_key(poster, 500), "second")
    bare.put_post(post_key(late, 400), "first")  # not at the end of the timelines
    keys = prefix(f"t|{reader}|")
    live = bare.scan(*keys)
    assert [value for _, value in live[-2:]] == ["first", "second"]
    bare.forget(keys[0])
    assert bare.first_scan(*keys) == live


def test_removing_a_post_undoes_it():
    world, bare = small_world()
    poster, reader = world.communities[0][:2]
    before = bare.scan(*prefix(f"t|{reader}|"))
    bare.put_post(post_key(poster, 500), "hello")
    bare.remove_post(post_key(poster, 500))
    assert bare.scan(*prefix(f"t|{reader}|")) == before


def test_every_world_gives_each_user_the_same_shape():
    for rows in (10_000, 40_000):
        world, bare = World.of_rows(rows, seed=1), BareTwip()
        fill_bare(bare, world.base_pairs(), world.users())
        assert abs(world.rows - rows) < 2_000
        assert sum(len(keys) for keys, _ in bare.subtables.values()) == world.rows
        assert {len(bare.followers[user]) for user in world.users()} == {40}
        assert {len(bare.scan(*prefix(f"t|{user}|"))) for user in world.users()} == {40}
        assert {len(bare.scan(*keys)) for keys in world.newest_two(2)} == {2}
