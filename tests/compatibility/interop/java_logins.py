"""Logins for Kafka's own tools."""

from __future__ import annotations

import subprocess
from pathlib import Path

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret";'


def run(command: list[str], seconds: float, typed: str = "", check: bool = True) -> str:
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=seconds, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + ("" if check else done.stderr)


def login(folder: Path, name: str, mechanism: str, password: str) -> Path:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    escaped = password.replace('"', '\\\\"')  # once for the properties file, once for JAAS
    file = folder / f"{name}-{mechanism}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config=org.apache.kafka.common.security."
        f'{module} required username="{name}" password="{escaped}";\n'
    )
    return file


def token_login(folder: Path, name: str, mechanism: str, token_id: str, hmac: str) -> Path:
    file = folder / f"{name}-{mechanism}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config=org.apache.kafka.common.security."
        f'scram.ScramLoginModule required username="{token_id}" password="{hmac}" tokenauth="true";\n'
    )
    return file
