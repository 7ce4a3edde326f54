"""The plugins that only tests load: tests/plugins, built beside the binary."""

import os
import subprocess

import pytest

from gateway import BINARY, run

BUILT = os.path.join(os.path.dirname(BINARY), "tests", "plugins")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = os.path.join(ROOT, "gateway", "plugin")
ENV = {"POSTERN_PLUGINS": BUILT}


def needed():
    if not os.path.isdir(BUILT):
        pytest.skip(f"the test plugins are not built: no {BUILT}")


def compiler():
    for name in ("cc", "gcc", "clang-14"):
        if subprocess.run(["which", name], capture_output=True).returncode == 0:
            return name
    pytest.skip("there is no C compiler here")


def build(folder, name, source, include=HEADER, flags=()):
    """Compiles a plugin of a few lines; the path of NAME.so."""
    path, out = os.path.join(str(folder), name + ".c"), os.path.join(str(folder), name + ".so")
    with open(path, "w") as file:
        file.write(source)
    done = subprocess.run([compiler(), "-shared", "-fPIC", "-std=gnu11", f"-I{include}", *flags,
                           "-o", out, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


MINIMAL = """
#include <postern_plugin.h>
static int one;
static bool configure(struct postern_setup *s, const struct postern_values *v, void **ret)
{
    (void)s, (void)v;
    *ret = &one;
    return true;
}
const struct postern_plugin postern_plugin = {
    .size = %(size)s, .abi_major = %(major)s, .abi_minor = POSTERN_ABI_MINOR,
    .name = "%(name)s", .version = "1", .summary = "A test's.", .configure = %(configure)s,
    .option_size = sizeof(struct postern_option), %(more)s};
"""


def minimal(name, size="sizeof(postern_plugin)", major="POSTERN_ABI_MAJOR",
            configure="configure", more=""):
    return MINIMAL % locals()


def check(folder, text, *args, env=None):
    """(status, what -t said) of that configuration."""
    path = os.path.join(str(folder), "checked.conf")
    with open(path, "w") as file:
        file.write(text)
    status, said, _ = run("-c", path, *(args or ("-t",)), env=dict(os.environ, **(env or ENV)))
    return status, said.replace(str(folder) + "/", "")
