"""Groups: who is in them, who reads what, and how far each has come; kept in the compacted topic `__consumer_offsets`.

`group.py` decides and returns effects, `group_coordinator.py` performs them. Transactions get their files beside these.
"""
