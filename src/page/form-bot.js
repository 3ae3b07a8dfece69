// The fields of the bots, for the setup page of a board and the settings of a runner. A field has the id of its variable.

import { make } from './dom.js';
import { rich } from './rich.js';

const CHOICES = [
	['parrot', 'Parrot', 'Repeats what you say, to try the sound. It needs nothing and costs nothing; what you say stays on the board.'],
	['realtime', 'Assistant by one service, such as OpenAI’s',
		'**OpenAI** needs a key of `platform.openai.com` with credit, and the Internet. It bills what it hears and says, silence too. All speech of a call goes there.',
		'**LocalAI** or **speech-to-speech**, on a PC of your own, needs its address and no key. It sends no bill, and speech stays in your network.'],
	['cascade', 'Assistant by three services, such as Whisper, Ollama and Piper',
		'One hears, one answers, one speaks, each of your choice. It needs their three addresses. Those in your own network cost nothing, and nothing leaves it if all three are there; one in the Internet needs a key, and bills.'],
];
const TEXT = 'What the bot is and does (optional)';
const servicesOf = (hasOneKey) => ({
	realtime: [
		['realtime', hasOneKey ? ['REALTIME_API_KEY', 'Key of OpenAI, or of another service'] : ['OPENAI_API_KEY', 'Key of OpenAI'], '', [], 'Another service', [
			['REALTIME_URL', 'Its address: of LocalAI with port 8080, of speech-to-speech with 8765', 'http://192.168.1.20:8080/v1'],
			...hasOneKey ? [] : [['REALTIME_API_KEY', 'Its key, if it has one']],
			['REALTIME_MODEL', 'Model'],
			['REALTIME_VOICE', 'Voice'],
		]],
	],
	cascade: [
		['recognizer', ['CASCADE_STT_URL', 'Recogniser, which hears', 'tcp://192.168.1.20:10300'],
			'Home Assistant’s add-on Whisper, its port opened: `tcp://homeassistant.local:10300`. Or speaches or LocalAI, by `http://` and a model. It gets the speech of callers.',
			[], 'Its model and key', [['CASCADE_STT_MODEL', 'Model, for `http://`'], ['CASCADE_STT_API_KEY', 'Key']]],
		['chat', ['CASCADE_LLM_URL', 'Chat model, which answers', 'http://192.168.1.20:11434/v1'],
			'Ollama on a PC, where `OLLAMA_HOST=0.0.0.0` is set, with port 11434. Or llama.cpp (8080), vLLM (8000), or a service in the Internet. It gets what both sides say, as text.',
			[['CASCADE_LLM_MODEL', 'Name of the model, such as `llama3.2`']], 'Its key', [['CASCADE_LLM_API_KEY', 'Key']]],
		['voice', ['CASCADE_TTS_URL', 'Voice, which speaks', 'tcp://192.168.1.20:10200'],
			'Home Assistant’s add-on Piper: `tcp://homeassistant.local:10200`. Or Kokoro-FastAPI (8880) or speaches, by `http://` and a model. It gets the answers, as text.',
			[], 'Its model, voice and key',
			[['CASCADE_TTS_MODEL', 'Model, for `http://`'], ['CASCADE_TTS_VOICE', 'Name of the voice'], ['CASCADE_TTS_API_KEY', 'Key']]],
	],
});
const MORE = {
	realtime: [['REALTIME_INSTRUCTIONS', TEXT]],
	cascade: [['CASCADE_LANGUAGE', 'Language of callers, such as `en` (optional)'], ['CASCADE_INSTRUCTIONS', TEXT]],
};

/** A label and its field: a choice, where there are `options`. */
export function field([variable, words, placeholder = '', options]) {
	const isLong = variable.endsWith('_INSTRUCTIONS');
	const input = Object.assign(make(options ? 'select' : isLong ? 'textarea' : 'input'), { id: variable, autocomplete: 'off', placeholder });
	input.dataset.variable = variable;
	if (options) input.append(...options.map(({ name, what }) => new Option(what || name, name)));
	else if (isLong) Object.assign(input, { rows: 3, maxLength: 4000 });
	else Object.assign(input, { type: variable.endsWith('_KEY') ? 'password' : 'text', autocapitalize: 'none', inputMode: variable.endsWith('_URL') ? 'url' : '' });
	return [Object.assign(make('label', '', ...rich(words)), { htmlFor: variable }), input];
}

function service([name, first, about, main, title, more]) {
	const said = Object.assign(make('p', 'said'), { id: `said-${name}` });
	said.setAttribute('role', 'status');
	const part = make('div', '', ...field(first), said, ...about ? [make('p', 'small', ...rich(about))] : [], ...main.flatMap(field),
		make('details', '', make('summary', '', title), ...more.flatMap(field)));
	part.dataset.service = name;
	return part;
}

function choice([value, words, ...about]) {
	const input = Object.assign(make('input'), { type: 'radio', name: 'bot', value });
	input.dataset.bot = value;
	input.setAttribute('aria-describedby', `of-${value}`);
	const hint = make('div', 'small hint', ...about.map((text) => make('p', '', ...rich(text))));
	hint.id = `of-${value}`;
	const parts = [make('label', 'check', input, ` ${words}`), hint];
	for (const part of parts) if (value !== 'parrot') part.dataset.assistant = '';
	return parts;
}

/** The choice of a bot, and what each needs: `data-for` says which bot. A file of settings has one key for a speech-to-speech service. */
export function botFields(hasOneKey = false) {
	const fields = Object.entries(servicesOf(hasOneKey)).map(([bot, services]) => {
		const part = make('div', '', ...services.map(service), ...MORE[bot].flatMap(field));
		part.dataset.for = `bot=${bot}`;
		return part;
	});
	return [...CHOICES.flatMap(choice), ...fields];
}
