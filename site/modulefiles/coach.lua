-- -*- lua -*-
-- coach @VERSION@ for Lmod, made by `make site`.
whatis("Name: coach")
whatis("Version: @VERSION@")
whatis("Description: see the cluster, launch trainings, learn why a job fails or crawls, with the evidence")
help([[
coach opens the screens; `coach why` says why your last job ended badly; `man coach` has the rest.
Completion, where the shell does not find it by itself:
  bash  source @ROOT@/share/bash-completion/completions/coach
  zsh   fpath=(@ROOT@/share/zsh/site-functions $fpath); autoload -Uz compinit; compinit
  fish  source @ROOT@/share/fish/vendor_completions.d/coach.fish
]])
conflict("coach")
-- bin/ has coach alone: its Python, and what else it needs, never come before a user's own.
prepend_path("PATH", "@ROOT@/bin")
