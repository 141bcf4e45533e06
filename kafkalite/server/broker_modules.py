"""The modules that a broker of a cluster needs until it has taken its first records.

A process imports this one before it is forked into brokers, which so have them; `tests/system/cluster` checks that they
import no other.
"""

# ruff: noqa: F401

from __future__ import annotations

import encodings.idna  # of names of hosts
import encodings.utf_8_sig  # of properties
import hmac

import kazoo.client
import uvloop

import kafkalite.config.jaas
import kafkalite.config.tls
import kafkalite.replication.replica_fetcher_manager
import kafkalite.replication.replica_roles
import kafkalite.server.broker
import kafkalite.server.membership.cluster_member
import kafkalite.server.membership.inter_broker_requests
import kafkalite.zk.client.kazoo_connection
import kafkalite.zk.client.kazoo_handler
