#!/usr/bin/env python3
"""Sets keys of Pulsar configuration files from the environment.

Usage: apply-config-from-env.py FILE...

PULSAR_PREFIX_key=value sets key in every file, adding it where it is missing.
A variable without the prefix replaces a key of the same name that a file has.
"""
import os
import sys

PREFIX = "PULSAR_PREFIX_"


def apply(path, environment):
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    forced = {k[len(PREFIX):]: v for k, v in environment.items() if k.startswith(PREFIX)}
    done = set()
    for i, line in enumerate(lines):
        key, equals, _ = line.partition("=")
        key = key.strip()
        if not equals or key.startswith("#"):
            continue
        value = forced.get(key, environment.get(key))
        if value is not None:
            lines[i] = key + "=" + value
            done.add(key)
    lines += [k + "=" + forced[k] for k in sorted(forced) if k not in done]
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: apply-config-from-env.py FILE...")
    for name in sys.argv[1:]:
        apply(name, os.environ)
