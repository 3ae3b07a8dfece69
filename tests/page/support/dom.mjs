// The part of the DOM that the page uses, without layout. Text is text: nothing here reads markup, so a test sees every node that
// the page makes.

import { setMaxListeners } from 'node:events';
import { setGlobal } from './page.mjs';

class Node extends EventTarget {
	parentElement = null;
	childNodes = [];

	get firstChild() { return this.childNodes[0] ?? null; }
	get lastChild() { return this.childNodes.at(-1) ?? null; }

	get textContent() { return this.childNodes.map((node) => node.textContent).join(''); }
	set textContent(text) { this.replaceChildren(...(text === '' ? [] : [String(text)])); }

	append(...nodes) {
		for (const node of nodes) {
			const own = node instanceof Node ? node : new Text(String(node));
			own.remove();
			own.parentElement = this;
			this.childNodes.push(own);
		}
	}

	replaceChildren(...nodes) {
		for (const node of [...this.childNodes]) node.remove();
		this.append(...nodes);
	}

	remove() {
		if (!this.parentElement) return;
		const { childNodes } = this.parentElement;
		childNodes.splice(childNodes.indexOf(this), 1);
		this.parentElement = null;
	}
}

class Text extends Node {
	constructor(text) {
		super();
		this.text = text;
	}

	get textContent() { return this.text; }
}

export class Element extends Node {
	constructor(tag, id = '') {
		super();
		Object.assign(this, {
			tagName: tag.toUpperCase(), id, className: '', hidden: false, disabled: false, dataset: {}, attributes: new Map(),
			scrollHeight: 0, scrollTop: 0, clientHeight: 0, clientWidth: 0,
		});
		this.style = { set: new Map(), setProperty: (name, value) => { this.style.set.set(name, value); } };
		this.classList = {
			contains: (name) => this.className.split(' ').includes(name),
			toggle: (name, isOn) => {
				const others = this.className.split(' ').filter((own) => own && own !== name);
				this.className = [...others, ...(isOn ? [name] : [])].join(' ');
			},
		};
	}

	/** Of a select: the chosen option, else the first. */
	get value() {
		const options = this.children.filter(({ tagName }) => tagName === 'OPTION');
		if (!options.length || options.some(({ value }) => value === this.ownValue)) return this.ownValue ?? '';
		return (options.find(({ selected }) => selected) ?? options[0]).value;
	}
	set value(value) { this.ownValue = String(value); }

	get children() { return this.childNodes.filter((node) => node instanceof Element); }
	get firstElementChild() { return this.children[0] ?? null; }
	get lastElementChild() { return this.children.at(-1) ?? null; }
	get isConnected() { return Boolean(this.parentElement?.isConnected ?? this.isRoot); }

	setAttribute(name, value) { this.attributes.set(name, String(value)); }
	getAttribute(name) { return this.attributes.get(name) ?? null; }
	removeAttribute(name) { this.attributes.delete(name); }

	after(node) {
		const { parentElement } = this;
		if (!parentElement) return;
		node.remove();
		node.parentElement = parentElement;
		parentElement.childNodes.splice(parentElement.childNodes.indexOf(this) + 1, 0, node);
	}

	/** All elements below. */
	all() { return this.children.flatMap((child) => [child, ...child.all()]); }

	/** Finds by one name: `.class`, `#id` or a tag. */
	querySelector(selector) {
		const fits = {
			'.': (element) => element.classList.contains(selector.slice(1)),
			'#': (element) => element.id === selector.slice(1),
		}[selector[0]] ?? ((element) => element.tagName === selector.toUpperCase());
		return this.all().find(fits) ?? null;
	}

	/** Finds all by an attribute: `[data-name]`. */
	querySelectorAll(selector) {
		const [, name] = /^\[data-(\w+)\]$/.exec(selector);
		return this.all().filter(({ dataset }) => name in dataset);
	}

	matches() { return false; }
	closest() { return null; }

	/** Fires an event that bubbles, as those of users do. */
	fire(type, more = {}) {
		for (let at = this; at; at = at.parentElement) {
			const event = new Event(type, { cancelable: true });
			Object.defineProperties(event, { target: { value: this }, currentTarget: { value: at } });
			at.dispatchEvent(Object.assign(event, more));
		}
	}

	click() { if (!this.disabled) this.fire('click'); }
	focus() { globalThis.document.activeElement = this; }
	select() {}
	showModal() { this.open = true; }
}

/** Makes `document` and what belongs to it. Elements that the page asks for by id are made when it does. */
export function makeDocument(address = 'http://192.168.1.5:7860/client/') {
	const known = new Map();
	const root = new Element('html');
	root.isRoot = true;
	const url = new URL(address);
	const own = new EventTarget();
	setMaxListeners(0, own);
	const document = Object.assign(new EventTarget(), {
		documentElement: root,
		activeElement: null,
		hidden: false,
		createElement: (tag) => new Element(tag),
		createElementNS: (_, tag) => new Element(tag),
		getElementById(id) {
			if (!known.has(id)) {
				known.set(id, new Element('div', id));
				root.append(known.get(id));
			}
			return known.get(id);
		},
		querySelector: (selector) => root.querySelector(selector),
		querySelectorAll: () => [],
	});
	setGlobal('document', document);
	setGlobal('location', url);
	setGlobal('history', { replaced: [], replaceState(_, __, to) {
		this.replaced.push(to);
		globalThis.location = new URL(to, globalThis.location);
	} });
	setGlobal('navigator', { userAgent: 'a test', maxTouchPoints: 0 });
	setGlobal('localStorage', {});
	setGlobal('sessionStorage', {});
	// Browsers call it once for each element, when they have laid it out.
	setGlobal('ResizeObserver', class {
		constructor(run) { this.run = run; }
		observe() { queueMicrotask(() => this.run([])); }
	});
	setGlobal('matchMedia', () => Object.assign(new EventTarget(), { matches: false }));
	setGlobal('getComputedStyle', () => ({ getPropertyValue: (name) => name, fontFamily: 'sans' }));
	setGlobal('devicePixelRatio', 1);
	setGlobal('Option', class extends Element {
		constructor(label, value, _, isSelected = false) {
			super('option');
			this.append(String(label));
			Object.assign(this, { value: String(value), selected: isSelected });
		}
	});
	for (const name of ['addEventListener', 'removeEventListener', 'dispatchEvent']) setGlobal(name, own[name].bind(own));
	return { byId: (id) => document.getElementById(id) };
}

/** An element as a tree of `[tag, class, ...children]`, for comparisons. */
export const tree = (node) => (node instanceof Element
	? [node.tagName.toLowerCase(), node.className, ...node.childNodes.map(tree)] : node.textContent ?? String(node));
