// Pipecat's published playground, served with `--page`, holds a call with the runner.
//
// Without the Internet the playground fails against every runner, Pipecat's included: its device manager loads a script from
// c.daily.co before it opens the microphone. `deviceManager` stands in for that one class, in the file that the browser
// receives; everything else is as published.

import { photograph } from './page.mjs';
import { until } from './runner.mjs';
import { HEARD, received } from './watch.mjs';

/** What the published file makes its device manager with, and what makes ours. */
const PUBLISHED = /mediaManager\|\|new [\w$]+\(/;
const OURS = 'mediaManager||globalThis.deviceManager(';

/** Runs in the page. The methods are those that its transport calls. */
function defineDeviceManager() {
	globalThis.deviceManager = () => {
		let callbacks, audio;
		const nothing = () => {};
		const none = async () => [];
		return {
			supportsScreenShare: false, isCamEnabled: false, isSharingScreen: false,
			get isMicEnabled() { return Boolean(audio?.enabled); },
			setClientOptions(options) { callbacks = options.callbacks; },
			async initialize() {
				audio ??= (await navigator.mediaDevices.getUserMedia({ audio: true })).getAudioTracks()[0];
				callbacks?.onTrackStarted?.(audio, { id: 'local', name: '', local: true });
			},
			async connect() { await this.initialize(); },
			async disconnect() { audio?.stop(); audio = undefined; },
			tracks: () => ({ local: audio ? { audio } : {} }),
			enableMic(on) { if (audio) audio.enabled = on; },
			enableCam: nothing, enableScreenShare: nothing, updateMic: nothing, updateCam: nothing, updateSpeaker: nothing,
			getAllMics: none, getAllCams: none, getAllSpeakers: none,
			selectedMic: {}, selectedCam: {}, selectedSpeaker: {},
		};
	};
}

export const checks = {
	async 'playground: Pipecat\'s page, served by the runner, holds a call'(context, runner, out) {
		let replaced = 0;
		await context.addInitScript(defineDeviceManager);
		await context.route('**/client/assets/*.js', async (route) => {
			const response = await route.fetch();
			const script = await response.text();
			if (PUBLISHED.test(script)) replaced += 1;
			await route.fulfill({ response, body: script.replace(PUBLISHED, OURS) });
		});
		const page = await context.newPage();
		const said = [];
		page.on('console', (message) => said.push(message.text()));
		const foreign = new Set();
		page.on('request', (request) => {
			const { protocol, host } = new URL(request.url());
			if (/^https?:$/.test(protocol) && host !== new URL(runner.url).host) foreign.add(host);
		});
		await page.goto(`${runner.url}/client/`);
		try {
			// A press before that is lost.
			await page.getByText('Transport state changed: initialized').first().waitFor();
			await page.getByRole('button', { name: /^connect$/i }).first().click();
			const heard = await until(async () => {
				const now = (await received(page)).energy;
				return now > HEARD && now;
			}, 'sound of the bot', 60000);
			await photograph(page, out, 'playground');
			if (replaced !== 1) throw new Error(`the published page makes its device manager in ${replaced} files`);
			await page.getByRole('button', { name: /disconnect/i }).first().click();
			await until(async () => (await runner.sessions()) === 0, 'the end of the session', 30000);
			// The one host that the published page asks is that of the class which is replaced here.
			if (foreign.size) throw new Error(`it asks other hosts: ${[...foreign]}`);
			return `heard ${heard.toFixed(3)}, and no other host asked`;
		} catch (error) {
			await photograph(page, out, 'playground-failed');
			throw new Error(`${error.message}; the page says ${JSON.stringify(said.slice(-8))}`);
		}
	},
};
