"""The import lines of the ImageNet Testbed, for its plug-in files and for no other code.

Its files say `from registry import registry` and `from models.model_base import Model`. Such a file is run with an
`__import__` of its own, which answers the names below with our words and with helper files of its folder. The names are
never put into `sys.modules`: other code that imports a package called `models` gets that package, before, meanwhile and
afterwards. The function stays with the file's code, so an import inside a loader works when the loader is called.
"""

from __future__ import annotations

import builtins
import importlib.util
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from testbed.data.regular import regular
from testbed.foreign import imagenet_testbed

_HEADS = ("registry", "models", "eval_settings", "mldb")


class ForeignFolder:
    """The modules that the plug-in files of one registry folder see under the names of the ImageNet Testbed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # Real names are private ones, which keep folders apart.
        self._prefix = f"testbed_plugin_{zlib.crc32(str(root.resolve()).encode()):08x}"
        self._modules: dict[str, ModuleType] = {}

    def run(self, path: Path) -> None:
        """Run a plug-in file, unless another file of the folder has imported it before."""
        name = f"{path.parent.name}.{path.stem}"
        before = dict(self._modules)
        try:
            if name in imagenet_testbed.WORDS:  # others that import this name get ours, but its entries are wanted
                self._execute(name, path)
            else:
                self._module(name)
        except BaseException:
            self._modules = before  # what it had imported takes its entries back with it
            raise

    def import_(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """What an import statement of these files calls."""
        if level:
            package = str((globals or {}).get("__package__"))
            name = importlib.util.resolve_name("." * level + name, package).removeprefix(f"{self._prefix}.")
        if name.partition(".")[0] not in _HEADS:
            return builtins.__import__(name, globals, locals, fromlist or (), 0)
        module = self._module(name)
        for word in fromlist or ():
            inside = f"{name}.{word}"
            if not hasattr(module, word) and (inside in imagenet_testbed.WORDS or self._path(inside) is not None):
                self._module(inside)
        return module if fromlist else self._module(name.partition(".")[0])

    def _module(self, name: str) -> ModuleType:
        if name in self._modules:
            return self._modules[name]
        parent, _, last = name.rpartition(".")
        package = self._module(parent) if parent else None
        if name in self._modules:  # its package has imported it
            return self._modules[name]
        if name in imagenet_testbed.WORDS:
            module = ModuleType(f"{self._prefix}.{name}")
            vars(module).update(imagenet_testbed.WORDS[name]())
            self._modules[name] = module
        elif (path := self._path(name)) is not None:
            module = self._execute(name, path)
        else:
            raise ModuleNotFoundError(f"No module named {name!r} in {self._root}", name=name)
        if package is not None:
            setattr(package, last, module)
        return module

    def _path(self, name: str) -> Path | None:
        """The file of a helper: a module or a package below models/ or eval_settings/ of the folder."""
        place = self._root.joinpath(*name.split("."))
        return next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()), None)

    def _execute(self, name: str, path: Path) -> ModuleType:
        real = f"{self._prefix}.{name}"
        inside = [str(path.parent)] if path.name == "__init__.py" else None
        spec = importlib.util.spec_from_file_location(real, regular(path), submodule_search_locations=inside)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # The import statement takes `__import__` from the builtins of the code's own globals.
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": self.import_}
        if name not in imagenet_testbed.WORDS:
            self._modules[name] = module
        sys.modules[real] = module  # dataclasses and pickle look a module up by its name
        spec.loader.exec_module(module)
        return module
