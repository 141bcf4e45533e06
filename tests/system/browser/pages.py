"""The pages of the console."""

from __future__ import annotations

PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "topic-messages": "/topics/orders/messages",
    "topic-configuration": "/topics/users/configuration",
    "topic-groups": "/topics/orders/groups",
    "topic-compaction": "/topics/users/compaction",
    "topic-segments": "/topics/users/segments",
    "topic-producers": "/topics/transfers/producers",
    "messages": "/messages?topic=orders&value=C00011",
    "groups": "/groups",
    "group": "/group?group_id=billing",
    "compaction": "/compaction",
    "storage": "/storage",
    "cluster": "/cluster",
    "clients": "/clients",
    "slow-requests": "/clients?show=slow",
    "transactions": "/clients?show=transactions",
    "quotas": "/clients?show=quotas",
    "topic-analysis": "/topics/orders/analysis",
    "access": "/access",
    "users": "/access?show=users",
    "not-found": "/nothing/here",
}
