// Where each node of the map is drawn: one field of cells, or a named block per group. Pure: widths in, places out.

const SIZES = [44, 36, 30, 26, 22, 18, 16, 14, 12, 10, 8, 7, 6, 5, 4, 3];
const MOST_HEIGHT = 348;
const TITLE = 18;
const BETWEEN = 12;
const LEAST_BLOCK = 84;

/**
 * {size, gap, width, height, places: [[x, y]] by node, titles: [{text, x, y, width}], order: nodes as they are read,
 * rows: [[index]] of them, line by line}. `group`: by node its number in `groups`; without it there is one field.
 */
export function arrange(total, width, { group = null, groups = [] } = {}) {
  const grouped = group?.length === total;
  const members = grouped ? split(group, groups) : [{ name: "", nodes: Array.from({ length: total }, (_, i) => i) }];
  for (const size of SIZES) {
    const made = grouped ? blocks(members, width, size) : field(members[0].nodes, width, size);
    if (made.height <= MOST_HEIGHT || size === SIZES.at(-1)) return { ...made, size, gap: size > 12 ? 2 : 1 };
  }
  return null;
}

function split(group, groups) {
  const members = groups.map((name) => ({ name, nodes: [] }));
  group.forEach((number, i) => members[number]?.nodes.push(i));
  return members.filter((one) => one.nodes.length);
}

function field(nodes, width, size) {
  const columns = Math.max(1, Math.floor(width / size));
  const places = [];
  const rows = [];
  nodes.forEach((node, i) => {
    places[node] = [(i % columns) * size, Math.floor(i / columns) * size];
    if (i % columns === 0) rows.push([]);
    rows.at(-1).push(node);
  });
  return { width: columns * size, height: Math.ceil(nodes.length / columns) * size, places, titles: [], rows };
}

/** Blocks side by side, as wide as they are tall or a little wider, in lines as text is. */
function blocks(members, width, size) {
  const places = [];
  const titles = [];
  const rows = [];
  let x = 0;
  let y = 0;
  let tallest = 0;
  for (const { name, nodes } of members) {
    const most = Math.max(1, Math.floor(width / size));
    const columns = Math.min(most, nodes.length, Math.max(Math.ceil(Math.sqrt(nodes.length * 2.4)), Math.ceil(LEAST_BLOCK / size)));
    const wide = Math.min(width, Math.max(columns * size, LEAST_BLOCK));
    if (x > 0 && x + wide > width) {
      x = 0;
      y += tallest + BETWEEN;
      tallest = 0;
    }
    titles.push({ text: `${name || "without"} (${nodes.length})`, x, y, width: wide });
    nodes.forEach((node, i) => {
      places[node] = [x + (i % columns) * size, y + TITLE + Math.floor(i / columns) * size];
      if (i % columns === 0) rows.push([]);
      rows.at(-1).push(node);
    });
    tallest = Math.max(tallest, TITLE + Math.ceil(nodes.length / columns) * size);
    x += wide + BETWEEN;
  }
  return { width, height: y + tallest, places, titles, rows };
}
