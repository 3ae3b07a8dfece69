// secure.js and mic.js: the way from a blocked microphone to HTTPS, and which microphones there are.

import assert from 'node:assert/strict';
import test, { beforeEach } from 'node:test';
import { makeDocument } from './support/dom.mjs';
import { anew, page, setGlobal } from './support/page.mjs';

makeDocument();
const { keepKey } = await page('api.js');

let answers, probed;

/** secure.js in that browser, at that address. */
async function secure(agent = 'Mozilla/5.0 (X11; Linux x86_64) Chrome/140', address = 'http://192.168.1.5:7860/client/?transport=moq', touches = 0) {
	makeDocument(address);
	setGlobal('navigator', { userAgent: agent, maxTouchPoints: touches });
	return anew('secure.js');
}

beforeEach(() => {
	answers = {};
	probed = [];
	keepKey('');
	delete globalThis.isSecureContext;
	setGlobal('fetch', async (url, options) => {
		probed.push([url.protocol, url.pathname.split('/').at(-1), options.method ?? 'GET', options.mode ?? '']);
		const type = answers[url.pathname.split('/').at(-1)];
		if (!type) throw new TypeError('no answer');
		return { ok: type === 'ok', type };
	});
});

const said = ({ title, text, note = '', steps = [], more }) => [title, text, note, steps, more?.steps ?? []].flat(3).map(String).join(' ');

test('a browser that gives no microphone to secure pages is named as the cause', async () => {
	const { noMicrophone } = await secure();
	globalThis.isSecureContext = true;
	const problem = await noMicrophone();
	assert.match(problem.text, /Open this address in Chrome/);
	assert.deepEqual([problem.listen, probed], [true, []]);
});

test('a runner with a certificate that is trusted is one click away', async () => {
	const own = await secure();
	assert.equal(own.phoneAddress, null);
	answers.status = 'opaque';
	const problem = await own.noMicrophone();
	assert.equal(problem.go.href, 'https://192.168.1.5:7860/client/?transport=moq');
	assert.deepEqual([problem.note, problem.more, problem.listen], [undefined, undefined, true]);
	assert.equal(own.phoneAddress.href, 'https://192.168.1.5:7860/client/');
	assert.ok(probed.some(([protocol, name, , mode]) => protocol === 'https:' && name === 'status' && mode === 'no-cors'));
});

test('a certificate of the runner’s own is announced with its warning, and can be trusted', async () => {
	const { noMicrophone } = await secure();
	answers['ca.crt'] = 'ok';
	const problem = await noMicrophone();
	assert.equal(problem.go.protocol, 'https:');
	assert.match(problem.note, /warn once.*“Advanced”, then “Proceed”/);
	assert.ok(problem.more.steps.flat().some((part) => part instanceof URL && part.pathname.endsWith('/ca.crt')));
	assert.ok(probed.some(([protocol, name, method]) => protocol === 'http:' && name === 'ca.crt' && method === 'HEAD'));
});

test('the key goes along, in the fragment', async () => {
	const { noMicrophone } = await secure();
	answers.status = 'opaque';
	keepKey('a b#c');
	assert.equal((await noMicrophone()).go.hash, '#key=a%20b%23c');
});

test('each browser’s own words lead to trust', async () => {
	const browsers = [
		['Mozilla/5.0 (iPhone) Safari', 0, /Certificate Trust Settings/, /visit this website/],
		['Mozilla/5.0 (Macintosh) Safari', 5, /Certificate Trust Settings/, /visit this website/],
		['Mozilla/5.0 (Macintosh) Version/18 Safari', 0, /Keychain Access/, /visit this website/],
		['Mozilla/5.0 (Linux; Android 15) Chrome/140', 5, /CA certificate/, /“Proceed”/],
		['Mozilla/5.0 (X11) Firefox/140', 0, /View Certificates/, /Accept the Risk/],
		['Mozilla/5.0 (X11) Chrome/140 Safari', 0, /chrome:\/\/certificate-manager/, /“Proceed”/],
	];
	for (const [agent, touches, trust, pass] of browsers) {
		const { noMicrophone } = await secure(agent, undefined, touches);
		answers['ca.crt'] = 'ok';
		const problem = await noMicrophone();
		assert.match(said(problem), trust, agent);
		assert.match(problem.note, pass, agent);
	}
});

test('without HTTPS the ways are named: --tls auto, a tunnel, and the machine itself', async () => {
	const { noMicrophone } = await secure();
	const problem = await noMicrophone();
	assert.deepEqual([problem.go, problem.listen], [undefined, true]);
	assert.match(said(problem), /--tls auto.*ssh -L 7860:localhost:7860 user@192\.168\.1\.5 .*http:\/\/localhost:7860\/client\//);
	answers['ca.crt'] = 'ok';
	const low = await secure(undefined, 'http://board.local/client/');
	assert.equal((await low.noMicrophone()).go.href, 'https://board.local:80/client/', 'at the same port');
	answers = {};
	assert.match(said(await low.noMicrophone()), /ssh -L 7860:localhost:80 user@board\.local .*http:\/\/localhost:7860\/client\/ .*http:\/\/localhost:80\/client\//);
	const six = await (await secure(undefined, 'http://[fd00::5]:8080/client/')).noMicrophone();
	assert.match(said(six), /ssh -L 8080:localhost:8080 user@fd00::5 /);
	const phone = await (await secure('Mozilla/5.0 (Linux; Android 15) Chrome/140', undefined, 5)).noMicrophone();
	assert.doesNotMatch(said(phone), /ssh/, 'a phone forwards no ports');
});

// ---- mic.js

const devices = [
	{ kind: 'audioinput', deviceId: 'default', label: 'Default' }, { kind: 'audioinput', deviceId: 'communications', label: 'C' },
	{ kind: 'audioinput', deviceId: 'm1', label: 'Built-in' }, { kind: 'audioinput', deviceId: 'm2', label: '' }, { kind: 'audioinput', deviceId: '', label: '' },
	{ kind: 'videoinput', deviceId: 'v1', label: 'Camera' },
	{ kind: 'audiooutput', deviceId: 'default', label: 'D' }, { kind: 'audiooutput', deviceId: 's1', label: 'Loud' }, { kind: 'audiooutput', deviceId: 's2', label: '' },
];

async function microphones(getUserMedia, isSecure = true) {
	if (isSecure) globalThis.isSecureContext = true;
	setGlobal('navigator', { mediaDevices: { enumerateDevices: async () => devices, getUserMedia } });
	setGlobal('HTMLMediaElement', class { setSinkId() {} });
	return anew('mic.js');
}

test('microphones and loudspeakers are listed without their aliases', async () => {
	const mic = await microphones(() => {});
	assert.deepEqual(await mic.list(), [{ id: 'm1', label: 'Built-in' }, { id: 'm2', label: 'Microphone 2' }]);
	assert.deepEqual(await mic.speakers(), [{ id: 's1', label: 'Loud' }]);
	setGlobal('HTMLMediaElement', class {});
	assert.deepEqual(await mic.speakers(), [], 'where a page may choose none');
});

test('a page that is not secure asks for nothing', async () => {
	const mic = await microphones(() => assert.fail('it asks'), false);
	assert.deepEqual([mic.allowed, await mic.list(), await mic.speakers()], [false, [], []]);
});

test('the chosen microphone is opened with echo cancellation; a missing one gives way to the default', async () => {
	const asked = [];
	const fails = { name: null };
	const mic = await microphones(async ({ audio }) => {
		asked.push(audio.deviceId?.exact ?? 'default');
		assert.deepEqual([audio.echoCancellation, audio.noiseSuppression, audio.autoGainControl], [true, true, true]);
		if (audio.deviceId && fails.name) throw Object.assign(new Error('x'), { name: fails.name });
		return { getAudioTracks: () => [`track of ${asked.at(-1)}`] };
	});
	assert.equal(await mic.open('m1'), 'track of m1');
	assert.equal(await mic.open(''), 'track of default');
	for (fails.name of ['OverconstrainedError', 'NotFoundError']) assert.equal(await mic.open('gone'), 'track of default');
	fails.name = 'NotAllowedError';
	await assert.rejects(mic.open('m1'), { name: 'NotAllowedError' });
	assert.deepEqual(asked, ['m1', 'default', 'gone', 'default', 'gone', 'default', 'm1']);
});
