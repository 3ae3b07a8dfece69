# shellcheck shell=bash
# Shared by the stages of tests/check.sh: missing tools, the release build, and lanes.
# Sourced from the root of the repository.

logs=target/check
# shellcheck disable=SC2034
binary=target/release/edge-runner
gstreamer='gstreamer1.0-plugins-bad gstreamer1.0-plugins-good gstreamer1.0-nice gstreamer1.0-tools gir1.2-gst-plugins-bad-1.0 python3-gi'

say() { printf '\n== %s\n' "$*"; }

# Skips a check whose tools are missing. Under CI=true that is a failure.
lacks() {
    printf 'skipped: %s\n' "$*"
    [ "${CI:-}" != true ] || exit 1
}

# Checks that commands exist: needs HOW-TO-INSTALL COMMAND...
needs() {
    local how=$1 command
    shift
    for command in "$@"; do
        command -v "$command" >/dev/null || { lacks "$command is not installed: $how"; return 1; }
    done
}

# Checks that a path exists: needs_path HOW-TO-INSTALL PATH
needs_path() {
    [ -e "$2" ] || { lacks "$2 is missing: $1"; return 1; }
}

# No package provides this right, so its absence is not a failure, even with CI=true.
needs_namespaces() {
    [ "$(uname)" = Linux ] && unshare -n true 2>/dev/null && return
    printf 'SKIPPED: %s. Network namespaces need root.\n' "$1"
    return 1
}

# Sets `python` to the interpreter with the packages of the peers, or to the system's.
find_python() {
    python=target/venv/bin/python
    [ -x $python ] || python=python3
}

# Checks that Python has modules: needs_python MODULES FOLDER-OF-ITS-REQUIREMENTS
needs_python() {
    find_python
    $python -c "import $1" 2>/dev/null && return
    lacks "Python lacks $1: python3 -m venv target/venv && target/venv/bin/pip install -r tests/peers/$2/requirements.txt"
    return 1
}

release() { [ -n "${built:-}" ] || cargo build --release --quiet; built=1; }

# Prints the failed checks of a stage, as cargo test and the peers name them, and the reasons of panics.
failed_checks() { grep -aE -A 1 '^(---- .* stdout ----$|thread .* panicked at |FAIL )' "$logs/$1.log" | cut -c 1-400 || true; }

# Runs stages in sequence, each as a process with its own log. A failure does not stop the lane.
lane() {
    local stage began
    for stage in "$@"; do
        began=$SECONDS
        if tests/check.sh "$stage" >"$logs/$stage.log" 2>&1; then
            touch "$logs/$stage.passed"
            printf '%-9s passed  %4d s\n' "$stage" $((SECONDS - began))
            grep -i '^skipped' "$logs/$stage.log" || true
        else
            printf '%-9s FAILED  %4d s, the checks that failed and the end of %s:\n' "$stage" $((SECONDS - began)) "$logs/$stage.log"
            failed_checks "$stage"
            tail -n 80 "$logs/$stage.log"
        fi
    done
}

# Runs lanes in parallel: together 'STAGE...' 'low STAGE...'. A lane that begins with `low` has low priority.
together() {
    local stages
    for stages in "$@"; do
        (
            case $stages in low*) renice -n 19 $BASHPID >/dev/null || true ;; esac
            # shellcheck disable=SC2086
            lane ${stages#low }
        ) &
        planned+=" ${stages#low }"
    done
    wait
}

# Prepares for lanes.
begin_lanes() {
    # The shell lets its background jobs outlive Ctrl-C.
    trap 'trap - INT TERM; kill 0' INT TERM
    mkdir -p $logs
    rm -f $logs/*.passed $logs/*.log
    planned=
}

# Prints the planned stages without a pass. A killed lane leaves stages without a result.
not_passed() {
    local stage
    for stage in $planned; do
        [ -e "$logs/$stage.passed" ] || printf ' %s' "$stage"
    done
}

# Runs the stages of a list that failed once more, alone: again 'STAGE...'. They talk in real time, and beside
# compilers a peer starves now and then. More than three have another cause. The first failures are printed as well: a
# defect that shows in one run of many looks the same.
again() {
    local stage failed=()
    for stage in $(not_passed); do
        case " $1 " in *" $stage "*) failed+=("$stage") ;; esac
    done
    [ ${#failed[@]} -gt 0 ] && [ ${#failed[@]} -le 3 ] || return 0
    say "failed beside other stages, once more alone: ${failed[*]}"
    for stage in "${failed[@]}"; do
        # A killed lane leaves stages without a log.
        [ ! -e "$logs/$stage.log" ] || cp "$logs/$stage.log" "$logs/$stage.first.log"
        failed_checks "$stage.first"
        lane "$stage"
    done
}

# Fails unless every stage of every lane passed.
end_lanes() {
    local stage missing
    missing=$(not_passed)
    if [ -n "$missing" ]; then
        say "not passed:$missing"
        # Once more at the end, which is what a shortened output keeps.
        for stage in $missing; do
            [ ! -e "$logs/$stage.log" ] || failed_checks "$stage"
        done
        exit 1
    fi
    say "all checks passed"
}
