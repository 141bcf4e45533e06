"""The errors with which a ZooKeeper answers. Source: org.apache.zookeeper.KeeperException.Code."""

from __future__ import annotations

MARSHALLING_ERROR, UNIMPLEMENTED, BAD_ARGUMENTS = -5, -6, -8
NO_NODE, NO_AUTH, BAD_VERSION, NO_CHILDREN_FOR_EPHEMERALS = -101, -102, -103, -108
NODE_EXISTS, NOT_EMPTY, SESSION_EXPIRED, INVALID_ACL, AUTH_FAILED = -110, -111, -112, -114, -115
NO_WATCHER, RECONFIG_DISABLED, QUOTA_EXCEEDED = -121, -123, -125


class Refused(Exception):
    """ZooKeeper's error `code`, for the operation at `index` of a transaction."""

    def __init__(self, code: int, index: int = 0) -> None:
        super().__init__(code)
        self.code = code
        self.index = index
