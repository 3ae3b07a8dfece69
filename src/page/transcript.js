// The conversation as a list of turns. In: RTVI texts, several of which repeat the same content. Out: a bubble per turn, and
// each finished text once to `announce`, for screen readers; and the whole as a text to save. The bot's text comes from the source of the highest rank:
// bot-output (3, with spoken progress), bot-transcription (2), bot-tts-text (1), bot-llm-text (0).

import { atEnd, clock, keepEnd, make } from './dom.js';
import { rich } from './rich.js';

const ITEMS_MAX = 300;
const CHARS_MAX = 4000;
const [LLM, TRANSCRIPTION, OUTPUT] = [0, 2, 3];

/** Words come without spaces; those of Chinese and Japanese have none. */
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\u3000-\u303f\uff00-\uffef]/u;
const continues = (before, piece) => !before || /\s$/.test(before) || /^[\s.,;:!?…)]/.test(piece) || UNSPACED.test([...before].at(-1)) || UNSPACED.test([...piece][0] ?? '');
const join = (before, piece) => before + (continues(before, piece) ? '' : ' ') + piece;

const asName = (name) => (typeof name === 'string' ? name.slice(0, 64) : 'a function');

export function transcript(list, announce) {
	let user, bot, cut, best, segments, calls, dialled;

	function add(className, who) {
		const body = make('p', 'words');
		const at = new Date();
		const time = Object.assign(make('time', '', clock(at).slice(0, 8)), { dateTime: at.toISOString() });
		const item = make('li', className, make('p', 'who', who, time), body);
		list.append(item);
		if (list.children.length > ITEMS_MAX) list.firstElementChild.remove();
		return { item, body, text: '', rank: -1 };
	}

	/** A new bot may use other sources and restarts its segment numbers. */
	function reset() {
		list.replaceChildren();
		user = bot = dialled = null;
		best = LLM;
		segments = new Map();
		calls = new Map();
	}

	/** The report of an interruption follows the start of the user's speech, which closes the turn. */
	function closeBot(mayBeCut = false) {
		if (bot && bot.rank < TRANSCRIPTION) announce(`Bot: ${bot.text}`);
		cut = mayBeCut ? bot : null;
		bot = null;
	}

	function heard(text, final) {
		if (!user) closeBot();
		user ??= add('user', 'You');
		if (final) {
			user.text = join(user.text, text).slice(-CHARS_MAX);
			announce(`You: ${text}`);
		}
		user.open = !final;
		user.body.replaceChildren(user.text, make('i', '', final ? '' : join(user.text, text).slice(user.text.length)));
		// The final text may arrive after the bot started to answer; it belongs to the previous bubble.
		if (final && list.lastElementChild !== user.item) user = null;
	}

	function typed(text) {
		closeBot();
		user = null;
		add('user', 'You, typed').body.append(text);
	}

	/** Keys of the keypad; those that follow each other share a bubble. */
	function pressed(key) {
		if (!dialled || list.lastElementChild !== dialled.item) {
			closeBot();
			user = null;
			dialled = add('user', 'You, by keypad');
		}
		dialled.body.append(key);
	}

	function turn(rank) {
		best = rank;
		if (!user?.open) user = null;
		bot ??= add('bot', 'Bot');
		if (bot.rank < rank) {
			bot.body.replaceChildren();
			Object.assign(bot, { rank, text: '' });
		}
	}

	function said(rank, text) {
		if (rank < best || !text) return;
		turn(rank);
		bot.text = (rank === LLM ? bot.text + text : join(bot.text, text)).slice(-CHARS_MAX);
		bot.body.replaceChildren(...rich(bot.text));
		if (rank === TRANSCRIPTION) announce(`Bot: ${text}`);
	}

	/** One segment, with its spoken part highlighted. */
	function output({ text, segment_id: id, spoken_status: state, spoken_progress: progress, will_be_spoken: aloud }) {
		if (typeof text !== 'string' || !text) return;
		let segment = segments.get(id);
		if (!segment) {
			if (bot?.body.childNodes.length > ITEMS_MAX) bot = null;
			turn(OUTPUT);
			segment = { done: make('span'), rest: make('span', 'soft') };
			bot.body.append(bot.body.firstChild ? ' ' : '', segment.done, segment.rest);
			if (id !== undefined) segments.set(id, segment);
			if (segments.size > ITEMS_MAX) segments.delete(segments.keys().next().value);
			announce(`Bot: ${text}`);
		}
		const whole = aloud === false || state === 'completed' || !progress;
		const done = whole ? text : String(progress.accumulated_text ?? '');
		segment.done.replaceChildren(...rich(done.slice(0, CHARS_MAX)));
		// The parts of some bots have lost the space between them: the text itself has all.
		const all = text.startsWith(done) ? text : join(done, String(progress?.remaining_text ?? ''));
		segment.rest.textContent = whole ? '' : all.slice(done.length, CHARS_MAX);
	}

	function interrupted() {
		(bot ?? cut)?.body.append(make('small', '', 'interrupted'));
		closeBot();
	}

	function note(title, detail, wrong) {
		const text = typeof detail === 'string' ? detail : String(JSON.stringify(detail, null, 1));
		add(wrong ? 'note wrong' : 'note', title).body.append(text.slice(0, CHARS_MAX));
		announce(`${title}: ${text.slice(0, 200)}`);
	}

	function called(id, name, values) {
		const detail = make('small', '', 'runs …');
		add('note', 'Function').body.append(asName(name) + (values ? `(${JSON.stringify(values).slice(0, CHARS_MAX)})` : ''), detail);
		calls.set(id, { detail, began: Date.now() });
		if (calls.size > ITEMS_MAX) calls.delete(calls.keys().next().value);
	}

	function returned(id, isCancelled) {
		const call = calls.get(id);
		if (call) call.detail.textContent = `${isCancelled ? 'failed' : 'done'} after ${((Date.now() - call.began) / 1000).toFixed(1)} s`;
		calls.delete(id);
	}

	/** Whether a function has not returned yet. */
	const isCalling = () => calls.size > 0;
	const isEmpty = () => !list.children.length;

	/** One line per turn. */
	const asText = () => [...list.children].map((item) => {
		const [who, time, body] = ['.who', 'time', '.words'].map((part) => item.querySelector(part));
		return `${time.dateTime} ${who.firstChild.textContent}: ${body.textContent.replaceAll('\n', '\n    ')}`;
	}).join('\n');

	keepEnd(list);
	const follow = (change) => (...args) => atEnd(list, () => change(...args));
	reset();
	return {
		reset,
		asText,
		isEmpty,
		isCalling,
		closeBot,
		heard: follow(heard),
		typed: follow(typed),
		pressed: follow(pressed),
		said: follow(said),
		output: follow(output),
		interrupted: follow(interrupted),
		note: follow(note),
		called: follow(called),
		returned,
	};
}
