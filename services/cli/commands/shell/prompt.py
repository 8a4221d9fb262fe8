"""The shell where there is a terminal: a prompt, the lines before, and names completed with Tab (cmd, readline)."""

from __future__ import annotations

import cmd

from ...exit_codes import ExitCode, to_failure
from .command_line import CommandFailed
from .explorer import Explorer

_DELIMITERS = " \t\n;'\""


class Prompt(cmd.Cmd):
    """Reads and does commands until `exit` or Ctrl-D."""

    def __init__(self, explorer: Explorer) -> None:
        super().__init__()
        self._explorer = explorer
        self.intro = (
            f"{explorer.where()}. Commands: {', '.join(explorer.commands)}; Tab completes, Ctrl-D ends."
        )

    def run(self) -> ExitCode:
        """Until the end."""
        _read_lines_with_readline()
        self.prompt = self._explorer.prompt()
        print(self.intro)
        self.intro = None
        while True:
            try:
                self.cmdloop()
                return ExitCode.OK
            except KeyboardInterrupt:
                # As in other shells: the line, or what is being done, is given up.
                print("^C")

    def onecmd(self, line: str) -> bool:
        """True: the end."""
        if line == "EOF":
            print()
            return True
        try:
            return not self._explorer.do(line)
        except Exception as error:
            known = error if isinstance(error, CommandFailed) else to_failure(error)
            if known is None:
                raise
            print(known)
            return False
        finally:
            self.prompt = self._explorer.prompt()

    def emptyline(self) -> bool:
        """Nothing, instead of the last command once more."""
        return False

    def completenames(self, text: str, *_: object) -> list[str]:
        """Commands."""
        return [f"{each} " for each in self._explorer.commands if each.startswith(text)]

    def completedefault(self, text: str, *_: object) -> list[str]:
        """Paths."""
        return self._explorer.completions(text)


def _read_lines_with_readline() -> None:
    try:
        import readline
    except ImportError:
        return
    readline.set_completer_delims(_DELIMITERS)
