// Checks of the page as it is rendered, after WCAG 2.1 AA; each gives what is wrong, as text. Read by page_checks.py.
({
  // Contrast of every visible piece of text against what is painted behind it (criterion 1.4.3).
  lowContrast() {
    const pen = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
    const rgba = (colour) => {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      return [r, g, b, a / 255];
    };
    const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
    const light = ([r, g, b]) => {
      const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
      return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    };
    const behind = (element) => {
      const layers = [];
      for (let e = element; e; e = e.parentElement) {
        const found = rgba(getComputedStyle(e).backgroundColor);
        if (found[3] > 0) layers.push(found);
        if (found[3] === 1) break;
      }
      return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
    };
    const wrong = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode.textContent.trim();
      const element = walker.currentNode.parentElement;
      if (!text || !element.checkVisibility() || element.closest('.hidden-text, .skip, noscript, :disabled, caption')) continue;
      const modal = document.querySelector('dialog[open]');
      if (modal && !modal.contains(element)) continue;
      const style = getComputedStyle(element);
      const back = behind(element);
      const front = over(rgba(style.color), back);
      const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
      const ratio = (high + 0.05) / (low + 0.05);
      const size = parseFloat(style.fontSize);
      const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      if (ratio < (large ? 3 : 4.5)) wrong.push(`${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
    }
    return [...new Set(wrong)];
  },

  // Names, landmarks, headings, captions, ids: what a screen reader goes by.
  structureFaults() {
    const wrong = [];
    const seen = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility());
    const name = (e) => (e.getAttribute('aria-label') || (e.getAttribute('aria-labelledby') ?? '').split(' ').filter(Boolean)
      .map((id) => document.getElementById(id)?.textContent ?? '').join(' ') || e.textContent || e.title || '').trim();
    if (!document.documentElement.lang) wrong.push('html has no lang');
    if (!document.title.trim()) wrong.push('no title');
    for (const [landmark, selector] of [['banner', 'body > header'], ['main', 'main'], ['contentinfo', 'body > footer']])
      if (seen(selector).length !== 1) wrong.push(`${landmark}: ${seen(selector).length} of them`);
    for (const nav of seen('nav')) if (!name(nav)) wrong.push('a nav without a name');
    if (seen('h1').length + document.querySelectorAll('h1.hidden-text').length === 0) wrong.push('no h1');
    const levels = [...document.querySelectorAll('main h1, main h2, main h3')].filter((e) => e.checkVisibility()).map((e) => Number(e.tagName[1]));
    levels.reduce((before, level) => { if (level > before + 1) wrong.push(`h${level} after h${before}`); return level; }, 0);
    for (const e of seen('button, a[href], summary')) if (!name(e) && !e.querySelector('img[alt]:not([alt=""])')) wrong.push(`no name: ${e.outerHTML.slice(0, 80)}`);
    for (const e of seen('input, select, textarea')) if (!e.labels?.length && !e.getAttribute('aria-label')) wrong.push(`no label: ${e.outerHTML.slice(0, 80)}`);
    for (const e of seen('img')) if (!e.hasAttribute('alt')) wrong.push(`no alt: ${e.src}`);
    for (const e of seen('canvas')) if (!e.getAttribute('aria-label') && e.getAttribute('aria-hidden') !== 'true') wrong.push('a canvas without words');
    for (const e of seen('table')) {
      if (!e.caption?.textContent.trim()) wrong.push(`no caption: ${e.outerHTML.slice(0, 80)}`);
      if (!e.querySelector('th[scope=col]')) wrong.push('a table without headers');
    }
    for (const e of seen('dialog')) if (!name(e)) wrong.push('a dialog without a name');
    for (const e of seen('[tabindex]')) if (Number(e.getAttribute('tabindex')) > 0) wrong.push('a positive tabindex');
    const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
    for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) wrong.push(`id ${id} twice`);
    return wrong;
  },

  // Text that wraps letter by letter: a line of fewer than four letters inside a word that goes on.
  letterWrapping() {
    const wrong = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      const element = node.parentElement;
      if (!node.textContent.trim() || !element.checkVisibility() || element.closest('.hidden-text, .skip, caption, thead, option, script')) continue;
      const modal = document.querySelector('dialog[open]');
      if (modal && !modal.contains(element)) continue;
      for (const word of node.textContent.matchAll(/[^\s\u200b-]{5,}/g)) {
        const lines = new Map();
        const range = document.createRange();
        for (let i = word.index; i < word.index + word[0].length; i++) {
          range.setStart(node, i);
          range.setEnd(node, i + 1);
          const top = Math.round(range.getBoundingClientRect().top);
          lines.set(top, (lines.get(top) ?? 0) + 1);
        }
        const counts = [...lines.values()];
        // the last line of a word may be short; one in which fewer than four letters find room is no line
        if (counts.length > 1 && (counts.slice(0, -1).some((letters) => letters < 4) || counts.length > 6)) wrong.push(`${counts.join('+')}: ${word[0].slice(0, 40)}`);
      }
    }
    return [...new Set(wrong)].slice(0, 10);
  },

  // What reaches beyond the right edge of the window.
  overflow() {
    const width = document.documentElement.clientWidth;
    const outside = (e) => e.checkVisibility() && !e.closest('.flush, .scroll, nav, .hidden-text, .skip, caption, thead')
      && e.getBoundingClientRect().right > width + 1;
    const wrong = [...document.body.querySelectorAll('*')].filter(outside).map((e) => `${e.tagName} ${e.className}`);
    if (document.scrollingElement.scrollWidth > width) wrong.push(`the page is ${document.scrollingElement.scrollWidth} wide`);
    return wrong.slice(0, 10);
  },
})
