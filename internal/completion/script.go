package completion

import "strings"

// scripts are what shells evaluate, with PROGRAM for the name of the program. Each
// asks "PROGRAM __complete -- WORD…" for lines of a candidate, a tab, and its help,
// and offers files if there are none.
var scripts = map[string]string{
	"bash": `# Completion of PROGRAM for bash: eval "$(PROGRAM completion bash)", or put this into
# /usr/share/bash-completion/completions/PROGRAM.
_PROGRAM() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("${line%%$'\t'*}")
  done < <("$1" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _PROGRAM PROGRAM
`,
	"zsh": `#compdef PROGRAM
# Completion of PROGRAM for zsh: eval "$(PROGRAM completion zsh)", or put this into a file
# _PROGRAM in a directory of $fpath.
_PROGRAM() {
  local line
  local -a texts shown
  while IFS= read -r line; do
    texts+=("${line%%$'\t'*}")
    shown+=("${line/$'\t'/  -- }")
  done < <("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
  if (( $#texts )); then
    compadd -l -d shown -- "${texts[@]}"
  else
    _files
  fi
}
if [[ "${funcstack[1]}" = _PROGRAM ]]; then
  _PROGRAM "$@"
else
  compdef _PROGRAM PROGRAM
fi
`,
	"fish": `# Completion of PROGRAM for fish: PROGRAM completion fish | source, or put this into
# ~/.config/fish/completions/PROGRAM.fish.
function __PROGRAM_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l found ($words[1] __complete -- $words[2..-1] 2>/dev/null)
  if test (count $found) -gt 0
    printf '%s\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c PROGRAM -f -a '(__PROGRAM_complete)'
`,
}

// Script returns what a shell (bash, zsh or fish) evaluates to complete a program,
// or an empty text for a shell that it does not know.
func Script(shell, program string) string {
	return strings.ReplaceAll(scripts[shell], "PROGRAM", program)
}
