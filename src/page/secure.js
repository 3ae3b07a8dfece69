// Guides from “microphone blocked” to HTTPS and to trust in the runner's certificate. In: a page without access to the
// microphone. Out: a problem of words.js. The runner serves HTTPS on its HTTP port.

import { apiKey, BASE } from './api.js';

const PROBE_MS = 3000;

const AGENT = navigator.userAgent;
const isApple = /iPhone|iPad/.test(AGENT) || (/Mac/.test(AGENT) && navigator.maxTouchPoints > 1);
const isPhone = isApple || /Android/.test(AGENT);

/** Where this browser manages trusted certificates. */
function trust() {
	if (isApple) {
		return ['Trust it: Settings, “Profile Downloaded”, Install. Then General, About, Certificate Trust Settings: switch it on.'];
	}
	if (isPhone) return ['Trust it: search the Settings for “CA certificate”, and install the file.'];
	if (/Firefox/.test(AGENT)) {
		return ['Trust it: Settings, Privacy & Security, View Certificates, Authorities, Import; tick “identify websites”.'];
	}
	if (!/Chrome/.test(AGENT)) return ['Trust it: open the file, and set it to “Always Trust” in Keychain Access.'];
	return ['Trust it: open', 'chrome://certificate-manager/localcerts/usercerts', 'and import it under “Trusted Certificates”.'];
}

/** What this browser's warning is passed with. */
function pass() {
	if (isApple || (/Safari/.test(AGENT) && !/Chrome|Firefox/.test(AGENT))) return '“Show Details”, then “visit this website”';
	if (/Firefox/.test(AGENT)) return '“Advanced”, then “Accept the Risk and Continue”';
	return '“Advanced”, then “Proceed”';
}

/** The same over HTTPS. */
function secure(address) {
	const url = new URL(address);
	url.protocol = 'https:';
	url.port = location.port || '80';
	return url;
}

const probe = (url, options) => fetch(url, { ...options, cache: 'no-store', signal: AbortSignal.timeout(PROBE_MS) })
	.then(({ ok, type }) => ok || type === 'opaque', () => false);

/** Where a phone opens this page with its microphone: over HTTPS if the runner speaks it. */
export let phoneAddress = null;

/** The same with the key of this page, which another origin does not know. */
export function overHttps() {
	const url = phoneAddress && new URL(phoneAddress);
	if (url && apiKey()) url.hash = `key=${encodeURIComponent(apiKey())}`;
	return url;
}

export async function noMicrophone() {
	if (globalThis.isSecureContext) {
		return {
			title: 'This browser gives pages no microphone',
			text: 'Apps that show pages inside themselves often do not. Open this address in Chrome, Firefox, Safari or Edge.',
			listen: true,
		};
	}
	const { hostname, href, origin, pathname, port } = location;
	const [twin, file] = [secure(href), new URL('ca.crt', BASE)];
	// Session storage belongs to one origin.
	if (apiKey()) twin.hash = `key=${encodeURIComponent(apiKey())}`;
	const [trusted, local] = await Promise.all([
		// For another origin the browser only reveals that a trusted server answered.
		probe(secure(new URL('status', BASE)), { mode: 'no-cors' }),
		probe(file, { method: 'HEAD' }),
	]);
	if (trusted || local) {
		phoneAddress = secure(new URL('client/', BASE));
		return {
			title: 'One step to the microphone: HTTPS',
			text: 'Browsers give the microphone to pages that came over HTTPS. The runner speaks it at this same address.',
			go: twin,
			listen: true,
			...!trusted && {
				note: `The browser will warn once, because the runner made its own certificate. That is expected: choose ${pass()}. The call is encrypted either way; only a trusted certificate also proves that this is your runner.`,
				more: {
					title: 'Trust this runner for good, so that no warning comes',
					steps: [
						['Save the certificate of this runner:', file],
						trust(),
						['Go on over HTTPS:', twin],
					],
				},
			},
		};
	}
	const far = port || '80';
	const near = far < 1024 ? '7860' : far;
	const forward = `ssh -L ${near}:localhost:${far} user@${hostname.replace(/[[\]]/g, '')}`;
	return {
		title: 'This page cannot use the microphone',
		text: `Browsers allow that over HTTPS, and to pages of this same device (localhost). This one came over plain HTTP from ${origin}.`,
		steps: [
			['Start the runner with', '--tls auto', 'and load this page anew: it then says how to go on.'],
			...isPhone ? [] : [['Or forward the port to this computer', forward, 'and open', new URL(pathname, `http://localhost:${near}`)]],
			['Or open the page on the machine that runs edge-runner:', `http://localhost:${far}${pathname}`],
		],
		listen: true,
	};
}
