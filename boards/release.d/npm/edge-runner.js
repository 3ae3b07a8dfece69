#!/usr/bin/env node
// Runs the program for this machine, which is in a package of its own, with the arguments of this process.
'use strict';

const { spawn } = require('node:child_process');
const own = require('./package.json');

const machine = `${process.platform}-${process.arch}`;
const packages = Object.keys(own.optionalDependencies);
const wanted = `${own.name}-${machine}`;

function fail(why) {
  console.error(`edge-runner: ${why}`);
  process.exit(1);
}

function find() {
  // Node for ARMv6 calls itself `arm`, too.
  if (!packages.includes(wanted) || String(process.config.variables.arm_version ?? 7) < '7') {
    const known = packages.map((name) => name.slice(own.name.length + 1)).join(', ');
    fail(`no package of npm has a program for ${machine}, only for ${known}; ${own.homepage} has other ways to install it`);
  }
  try {
    return require.resolve(`${wanted}/edge-runner`);
  } catch {
    return fail(`the package ${wanted} is missing: install ${own.name} again, without --omit=optional`);
  }
}

const file = find();
let child;
// Before the program starts: a signal that ended this process would leave it behind.
for (const signal of ['SIGTERM', 'SIGHUP', 'SIGINT']) {
  process.on(signal, () => {
    // Ctrl-C in a terminal reaches the program by itself, and a second one would end it at once.
    if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal);
  });
}
child = spawn(file, process.argv.slice(2), { stdio: 'inherit' });
child.on('error', (error) => fail(`the program cannot be started: ${error.message}`));
child.on('exit', (code, signal) => {
  if (!signal) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
