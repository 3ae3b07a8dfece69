#!/usr/bin/env python3
"""`cross/builder-kubernetes`: what it asks of a cluster and in which order, what it says when that fails, and that its Job is deleted.

    tests/check/test_builder_kubernetes.py

`kubectl` and `buildctl` are stand-ins that record their arguments. tests/check.sh engines has the real ones.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = ROOT / "cross/builder-kubernetes"
MANIFEST = ROOT / "cross/builder-kubernetes.yaml"
ID = "0d4b1c7e-4f8a-4f62-9d0a-5b1f1f6f2a11"
JOB = f"edge-runner-build-{ID}-"
POD = f"{JOB}1-x7k2p"
READY = f"{POD}|Running|True|  \n"
# What the commands use, without a kubectl and a buildctl of this machine.
TOOLS = "basename cat date dirname grep head mv readlink sed sh sleep timeout tr wc".split()
# Answers questions for pods with the files pods.1, pods.2 and so on, and the last one for good.
KUBECTL = """#!/bin/sh
cd "$(dirname "$0")/.."
printf 'kubectl %s\\n' "$*" >>calls
case " $* " in
*' create '*)
    cat >manifest
    [ ! -e refused ] || { cat refused >&2; exit 1; } ;;
*' get pods '*)
    asked=$(($(cat asked 2>/dev/null || echo 0) + 1))
    echo "$asked" >asked
    while [ ! -e "pods.$asked" ]; do asked=$((asked - 1)); done
    [ -s "pods.$asked" ] || ! grep -q . away 2>/dev/null || { cat away >&2; exit 1; }
    cat "pods.$asked" ;;
*' delete '*)
    [ ! -e kept ] || { cat kept >&2; exit 1; } ;;
esac
"""
BUILDCTL = """#!/bin/sh
here=$(dirname "$0")/..
printf 'buildctl %s\\n' "$*" >>"$here/calls"
case " $* " in *' build '*) ;; *) exit 0 ;; esac
[ ! -e "$here/hangs" ] || exec sleep 60
[ ! -e "$here/fails" ] || { mv "$here"/after "$here/pods.1" 2>/dev/null; cat "$here/fails" >&2; exit 7; }
for word; do case $word in *dest=*) echo image >"${word##*dest=}" ;; esac; done
"""


class BuilderKubernetes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in ("kubectl", KUBECTL), ("buildctl", BUILDCTL):
            self.write(f"bin/{name}", text).chmod(0o755)
        for name in TOOLS:
            (self.folder / "bin" / name).symlink_to(shutil.which(name))
        for name in "context", "out", "home", "tmp":
            (self.folder / name).mkdir()
        self.write("context/Dockerfile", "FROM scratch\n")
        self.write("pods.1", READY)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def start(self, attempt=1, **variables):
        environment = {
            "PATH": f"{self.folder}/bin", "HOME": f"{self.folder}/home", "TMPDIR": f"{self.folder}/tmp", "BUILD_ID": ID,
            "BUILD_ORG": "default", "BUILD_REGION": "local", "BUILD_CONTEXT": f"{self.folder}/context", "BUILD_FILE": "Dockerfile",
            "BUILD_CONTEXT_HASH": "0" * 16, "BUILD_OUT": f"{self.folder}/out", "BUILD_RESULT": f"{self.folder}/result",
            "BUILD_ATTEMPT": str(attempt), **variables,
        }
        return subprocess.Popen(
            [COMMAND], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True)

    def run_(self, *given, **variables):
        process = self.start(*given, **variables)
        process.said, process.errors = process.communicate(timeout=60)
        return process

    def calls(self):
        """The verbs of kubectl and the words of buildctl, in order."""
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.replace("kubectl --namespace edge-runner-builds --request-timeout 5s ", "") for line in lines]

    def deleted(self):
        return [call for call in self.calls() if call.startswith("delete ")]

    def test_a_build_has_a_job_of_its_own_that_is_deleted(self):
        ran = self.run_()
        self.assertEqual(ran.returncode, 0, ran.errors)
        self.assertEqual((self.folder / "out/image.tar").read_text(), "image\n")
        create, get, workers, build, delete = self.calls()
        self.assertEqual(create, "create --filename -")
        self.assertIn(f"get pods --selector job-name={JOB}1 ", get)
        address = f"--addr kube-pod://{POD}?namespace=edge-runner-builds&container=buildkit "
        self.assertIn(address, workers)
        self.assertIn(address, build)
        self.assertEqual(delete, f"delete job {JOB}1 --ignore-not-found --wait=false")
        # Nothing but the name differs.
        self.assertEqual((self.folder / "manifest").read_text(), MANIFEST.read_text().replace("name: edge-runner-build\n", f"name: {JOB}1\n", 1))

    def test_an_image_is_pushed_where_there_is_a_registry(self):
        ran = self.run_(IMAGE_REGISTRY="registry.example/team", KUBERNETES_NAMESPACE="others")
        # The stand-in reports no digest.
        self.assertIn("did not report the digest of registry.example/team/default:", ran.errors)
        self.assertIn("kubectl --namespace others --request-timeout 5s create", self.calls()[0])
        self.assertIn(f"kube-pod://{POD}?namespace=others&", self.calls()[2])

    def test_each_state_of_the_pod_is_said_once_until_it_is_ready(self):
        pending = f"{POD}|Pending||   0/3 nodes are available: 3 Insufficient cpu.\n"
        for number, state in enumerate(["", "", pending, f"{POD}|Pending|False| ContainerCreating  \n", READY], 1):
            self.write(f"pods.{number}", state)
        ran = self.run_()
        self.assertEqual(ran.returncode, 0, ran.errors)
        self.assertEqual([line for line in ran.said.splitlines() if line.startswith(("no pod", "pod "))], [
            "no pod", f"pod {POD} Pending: 0/3 nodes are available: 3 Insufficient cpu.", f"pod {POD} Pending: ContainerCreating",
            f"pod {POD} Running"])

    def test_a_job_that_the_cluster_refuses_fails_the_build_with_its_reason(self):
        self.write("refused", 'Error from server (Forbidden): jobs.batch is forbidden: exceeded quota: edge-runner-builds\n')
        ran = self.run_()
        self.assertEqual(ran.returncode, 1)
        self.assertIn("exceeded quota", ran.errors)
        self.assertIn("did not take the Job", ran.errors)
        # The answer may have been lost after it was created.
        self.assertEqual(len(self.deleted()), 1)
        self.assertFalse([call for call in self.calls() if call.startswith("buildctl")])

    def test_a_pod_that_is_not_ready_in_time_fails_the_build_with_its_state(self):
        self.write("pods.1", f"{POD}|Pending|False| ImagePullBackOff  \n")
        ran = self.run_(KUBERNETES_START="1")
        self.assertEqual(ran.returncode, 1)
        self.assertIn(f"no pod is ready within 1 s (KUBERNETES_START): pod {POD} Pending: ImagePullBackOff", ran.errors)
        self.assertEqual(len(self.deleted()), 1)

    def test_a_pod_that_ends_before_the_build_fails_it_at_once(self):
        self.write("pods.1", f"{POD}|Failed|False|  Error \n")
        ran = self.run_()
        self.assertEqual(ran.returncode, 1)
        self.assertIn(f"ended before the build began: pod {POD} Failed: Error", ran.errors)
        self.assertEqual(len(self.deleted()), 1)

    def test_a_cluster_that_does_not_answer_for_a_moment_fails_no_build(self):
        self.write("away", "Unable to connect to the server\n")
        self.write("pods.1", "")
        self.write("pods.2", READY)
        ran = self.run_()
        self.assertEqual(ran.returncode, 0, ran.errors)
        self.assertIn("the cluster does not answer\n", ran.said)

    def test_a_build_that_fails_says_whether_its_pod_is_gone(self):
        self.write("fails", "error: process \"/bin/sh -c exit 7\" did not complete successfully: exit code: 7\n")
        ran = self.run_()
        self.assertEqual(ran.returncode, 1)
        self.assertTrue(ran.errors.endswith("exit code: 7\n"), ran.errors)
        self.write("after", f"{POD}|Failed|False|  OOMKilled \n")
        ran = self.run_()
        self.assertEqual(ran.returncode, 1)
        self.assertTrue(ran.errors.endswith(f"did not outlive the build: pod {POD} Failed: OOMKilled\n"), ran.errors)
        self.assertEqual(len(self.deleted()), 2)

    def test_a_stop_deletes_the_job(self):
        self.write("hangs", "")
        process = self.start()
        self.addCleanup(process.communicate)
        until = time.monotonic() + 60
        while not any(" build " in call for call in self.calls()):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        # The service signals the group.
        os.killpg(process.pid, signal.SIGTERM)
        self.assertEqual(process.wait(60), 143)
        self.assertEqual(self.deleted(), [f"delete job {JOB}1 --ignore-not-found --wait=false"])

    def test_a_later_attempt_deletes_the_jobs_of_earlier_ones_first(self):
        ran = self.run_(3)
        self.assertEqual(ran.returncode, 0, ran.errors)
        self.assertEqual(self.calls()[0], f"delete job {JOB}1 {JOB}2 --ignore-not-found --wait=false")
        self.assertEqual(self.deleted()[1:], [f"delete job {JOB}3 --ignore-not-found --wait=false"])

    def test_a_job_that_cannot_be_deleted_does_not_fail_the_build(self):
        self.write("kept", "Unable to connect to the server\n")
        ran = self.run_()
        self.assertEqual(ran.returncode, 0, ran.errors)
        self.assertIn(f"the Job {JOB}1 could not be deleted, and ends by itself", ran.errors)

    def test_what_is_missing_is_said_before_anything_is_asked(self):
        other = self.write("other.yaml", "kind: Job\n")
        for words, variables in (
            ("BUILD_ID is not set", {"BUILD_ID": ""}),
            ("not one line `  name: edge-runner-build`", {"KUBERNETES_JOB": str(other)}),
            ("absent.yaml, the manifest of the Job (KUBERNETES_JOB), cannot be read", {"KUBERNETES_JOB": "absent.yaml"}),
            ("KUBERNETES_START is `5m` and should be seconds", {"KUBERNETES_START": "5m"}),
        ):
            ran = self.run_(**variables)
            self.assertEqual(ran.returncode, 1)
            self.assertIn(words, ran.errors)
        (self.folder / "bin/buildctl").unlink()
        self.assertIn("there is no buildctl in PATH", self.run_().errors)
        self.assertEqual(self.calls(), [])


if __name__ == "__main__":
    unittest.main()
