"""Share partitions on the leader (KIP-932): which records are acquired by whom, as pure decisions."""
