"""In front of PYTHONPATH: lets a bot run without the packages, the keys and the servers of the services that it names.

Modules that are not installed are stand-ins with any name, for Pipecat and for the bot. Pipecat's services are scripted
(`services.py`) as soon as their modules are loaded.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

SETTINGS = ("_KEY", "_URL", "_TOKEN", "_ID", "_SECRET", "_REGION", "_ENDPOINT", "_SID", "_LICENSE", "_PATH", "_NAME", "_HOST", "_MODEL",
            "_CREDENTIALS", "_LOCATION", "_PROJECT", "_UUID")


# Pipecat itself, and what it does without.
NOT_STOOD_FOR = ("pipecat", "sitecustomize", "usercustomize", "importlib_resources", "uvloop", "daily", "pipecat_private")


class StandInType(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        # Of a member of an enumeration.
        return cls.__name__ if name == "value" else StandInType(name, (StandIn,), {})

    def __iter__(cls):
        return iter(())


class StandIn(metaclass=StandInType):
    """Takes any arguments, has any attribute, and awaits to itself."""

    def __init__(self, *_, **__):
        pass

    def __init_subclass__(cls, **_):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()

    def __call__(self, *_, **__):
        return self

    def __await__(self):
        if False:
            yield
        return self

    def __iter__(self):
        return iter(())

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    @classmethod
    def __get_pydantic_core_schema__(cls, *_):
        from pydantic_core import core_schema

        return core_schema.any_schema()


class Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last: modules that nothing else finds."""

    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root in NOT_STOOD_FOR or (root != name and not is_stand_in(root) and not of_namespace(root)):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_for_a_bot() else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__stand_in__ = True

        def any_name(name):
            if name.startswith("__"):
                raise AttributeError(name)
            found = StandInType(name, (StandIn,), {"__module__": module.__name__})
            setattr(module, name, found)
            return found

        module.__getattr__ = any_name


def is_stand_in(name):
    return getattr(sys.modules.get(name), "__stand_in__", False)


def of_namespace(name):
    """Packages without a file of their own, such as `google`, may lack a part."""
    module = sys.modules.get(name)
    return module is not None and getattr(module, "__file__", None) is None


def is_for_a_bot():
    """Whether Pipecat or the bot imports it. Other packages work without what they lack."""
    frame = sys._getframe(1)
    while frame:
        name = frame.f_globals.get("__name__", "")
        if not (name.startswith(("importlib", "edge_runner")) or name in (__name__, "os", "_collections_abc")):
            file = frame.f_globals.get("__file__") or ""
            return name.startswith("pipecat.") or "site-packages" not in file and not file.startswith(sys.base_prefix + "/lib")
        frame = frame.f_back
    return False


class Scripted(importlib.abc.MetaPathFinder):
    """First: modules of services, whose classes are replaced once they are loaded."""

    def __init__(self):
        self.busy = set()

    def find_spec(self, name, path=None, target=None):
        # The other modules right below `pipecat.services` are those of the base classes.
        is_service = name.startswith("pipecat.services.") and (name.count(".") > 2 or name.endswith(".mcp_service"))
        if not is_service or name in self.busy:
            return None
        self.busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy.discard(name)
        if spec and spec.loader and spec.origin and not spec.origin.endswith("__init__.py"):
            spec.loader = Wrapped(spec.loader)
        return spec


class Wrapped(importlib.abc.Loader):
    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        import services

        services.script(module)


class Environment(type(os.environ)):
    """Any key, address or id of a service that a bot asks for is there."""

    def __getitem__(self, key):
        try:
            return super().__getitem__(key)
        except KeyError:
            if is_setting(key) and is_for_a_bot():
                return "https://127.0.0.1:9" if key.endswith(("_URL", "_ENDPOINT")) else "1234"
            raise

    def get(self, key, default=None):
        return super().get(key, default) if default is not None or not is_setting(key) else self._or_none(key)

    def _or_none(self, key):
        try:
            return self[key]
        except KeyError:
            return None


def is_setting(key):
    return key.isupper() and not key.startswith(("_", "PYTHON", "PIPECAT")) and key.endswith(SETTINGS)


if os.environ.get("SCRIPTED_SERVICES"):
    os.environ.__class__ = Environment
    sys.meta_path.insert(0, Scripted())
    sys.meta_path.append(Missing())
