#%Module1.0
# coach @VERSION@ for Environment Modules, made by `make site`.
module-whatis "coach @VERSION@: see the cluster, launch trainings, learn why a job fails or crawls, with the evidence"
proc ModulesHelp { } {
    puts stderr "coach opens the screens; `coach why` says why your last job ended badly; `man coach` has the rest."
    puts stderr "Completion, where the shell does not find it by itself:"
    puts stderr "  bash  source @ROOT@/share/bash-completion/completions/coach"
    puts stderr "  zsh   fpath=(@ROOT@/share/zsh/site-functions \$fpath); autoload -Uz compinit; compinit"
    puts stderr "  fish  source @ROOT@/share/fish/vendor_completions.d/coach.fish"
}
conflict coach
# bin/ has coach alone: its Python, and what else it needs, never come before a user's own.
prepend-path PATH "@ROOT@/bin"
