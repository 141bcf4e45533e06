from __future__ import annotations

from kafkalite.log.storage.files import DescriptorCache, capacity_for_limit


class Held:
    def __init__(self) -> None:
        self.used = False
        self.released = 0

    def release(self) -> None:
        self.released += 1


def test_the_least_recently_used_gives_its_descriptors_back() -> None:
    ring = DescriptorCache(2)
    a, b, c, d = (Held() for _ in range(4))
    ring.add(a)
    ring.add(b)
    a.used = False  # nobody asked for it lately
    ring.add(c)
    assert (a.released, b.released, c.released) == (1, 0, 0)
    b.used = c.used = False
    b.used = True
    ring.add(d)
    assert (b.released, c.released) == (0, 1)
    ring.remove(d)
    assert len(ring) == 1
    assert capacity_for_limit(1024) == 170
