"""A key distribution centre of MIT's Kerberos on this machine, with a realm of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port
from tests.support.wait import until

REALM = "KAFKALITE.TEST"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_SBIN = "/usr/sbin"


def missing_requirement() -> str | None:
    path = os.pathsep.join([os.environ.get("PATH", ""), _SBIN])
    missing = [name for name in _PROGRAMS if shutil.which(name, path=path) is None]
    return f"{', '.join(missing)} missing (./dev interop installs what is needed)" if missing else None


class Kerberos:
    """`environment` is for programs that use it; `keytab` makes a principal and a file with its keys."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.conf = home / "krb5.conf"
        self.environment = os.environ | {
            "KRB5_CONFIG": str(self.conf),
            "KRB5_KDC_PROFILE": str(home / "kdc.conf"),
            "KRB5RCACHENAME": f"dfl:{home / 'replays'}",
            "PATH": os.pathsep.join([os.environ.get("PATH", ""), _SBIN]),
        }
        address = f"127.0.0.1:{free_port()}"
        self.conf.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            f" rdns = false\n dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = {address}\n }}\n"
        )
        (home / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = {address}\n kdc_tcp_listen = {address}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {home / 'principal'}\n  key_stash_file = {home / 'stash'}\n"
            f"  acl_file = {home / 'acl'}\n  max_life = 1h\n"
            f"  max_renewable_life = 1d\n }}\n[logging]\n kdc = FILE:{home / 'kdc.log'}\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    def keytab(self, principal: str, life: str = "") -> Path:
        path = self.home / f"{principal.replace('/', '_')}.keytab"
        limit = f'-maxlife "{life}"' if life else ""
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc {limit} -randkey {principal}@{REALM}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}@{REALM}")
        return path

    def tickets(self, principal: str, *how: str) -> dict[str, str]:
        """The environment of a program that acts for this principal, whose keytab there is. `how`: options of kinit."""
        cache = f"FILE:{self.home / principal.replace('/', '_')}.tickets"
        keytab = self.home / f"{principal.replace('/', '_')}.keytab"
        self._run("kinit", "-c", cache, *how, "-k", "-t", str(keytab), f"{principal}@{REALM}")
        return self.environment | {"KRB5CCNAME": cache}

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def kerberos(home: Path) -> Iterator[Kerberos]:
    """Skips nothing: ask `missing_requirement` before."""
    home.mkdir(parents=True, exist_ok=True)
    made = Kerberos(home)
    log = (home / "kdc.out").open("w")
    process = subprocess.Popen(["krb5kdc", "-n"], env=made.environment, stdout=log, stderr=log)
    try:
        until(lambda: "commencing operation" in _text(home / "kdc.log"), lambda: _text(home / "kdc.out"))
        yield made
    finally:
        process.terminate()
        process.wait(60)
        log.close()


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
