// The attention viewer. Text only ever becomes text nodes; nothing of the data is read as HTML.
(() => {
  "use strict";
  const holder = document.getElementById("viewer-data");
  if (!holder) return;
  const systems = JSON.parse(holder.textContent);
  const part = (name) => document.getElementById(`viewer-${name}`);
  const chosen = { system: 0, sentence: 0, kind: "cross", layer: Infinity, head: -1, query: 0 };
  const CELL = 19;

  // Points of the colour map cividis, which looks the same to people with any colour vision.
  const CIVIDIS = [
    [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115],
    [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
  ];
  // By the square root, so that small weights can be told apart; the same for every map.
  const colour = (weight) => {
    const place = Math.sqrt(weight) * (CIVIDIS.length - 1);
    const low = Math.min(Math.floor(place), CIVIDIS.length - 2);
    const mixed = CIVIDIS[low].map((from, i) => Math.round(from + (CIVIDIS[low + 1][i] - from) * (place - low)));
    return `rgb(${mixed.join(",")})`;
  };
  const percent = (weight) => (weight > 0 && weight < 0.005 ? "<1\u00a0%" : `${Math.round(100 * weight)}\u00a0%`);

  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const drawn = (parent, tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };

  const sentence = () => systems[chosen.system].sentences[chosen.sentence];
  const map = () => sentence().maps[chosen.kind];
  const queries = () => (chosen.kind === "encoder" ? sentence().source : sentence().target);
  const keys = () => (chosen.kind === "decoder" ? sentence().read : sentence().source);

  // The shown weights as rows: of one head, or the mean of all.
  const matrix = () => {
    const { shape: [, heads, rows, columns], weights } = map();
    const bytes = Uint8Array.from(atob(weights), (character) => character.charCodeAt(0));
    const wanted = chosen.head < 0 ? [...Array(heads).keys()] : [chosen.head];
    const at = (head, row, column) => bytes[((chosen.layer * heads + head) * rows + row) * columns + column];
    return [...Array(rows).keys()].map((row) => [...Array(columns).keys()].map((column) =>
      wanted.reduce((sum, head) => sum + at(head, row, column), 0) / wanted.length / 255));
  };

  const fill = (name, labels, value) => {
    const options = labels.map(([key, text]) => { const option = element("option", "", text); option.value = key; return option; });
    part(name).replaceChildren(...options);
    part(name).value = value;
  };
  const numbered = (count, word) => [...Array(count).keys()].map((i) => [i, `${word} ${i + 1}`]);

  // What can be chosen depends on what is chosen: keep it where that is possible.
  const showControls = () => {
    chosen.sentence = Math.min(chosen.sentence, systems[chosen.system].sentences.length - 1);
    const [layers, heads] = map().shape;
    chosen.layer = Math.min(chosen.layer, layers - 1);
    chosen.head = Math.min(chosen.head, heads - 1);
    chosen.query = Math.min(chosen.query, queries().length - 1);
    fill("system", systems.map(({ name }, i) => [i, name]), chosen.system);
    fill("sentence", systems[chosen.system].sentences.map(({ text }, i) => [i, text]), chosen.sentence);
    part("kind").value = chosen.kind;
    fill("layer", numbered(layers, "layer"), chosen.layer);
    const { taught } = systems[chosen.system];
    const isTaught = (head) => head === taught && chosen.kind === "cross" && chosen.layer === layers - 1;
    const named = numbered(heads, "head").map(([head, name]) => [head, isTaught(head) ? `${name}, taught to align words` : name]);
    fill("head", [[-1, "mean of all heads"], ...named], chosen.head);
  };

  const showPieces = () => {
    const says = chosen.kind === "encoder" ? "This piece of the source …" : "While saying this piece …";
    const looks = { encoder: "… looks at the source", decoder: "… it looks at what it has said", cross: "… it looks at the source" };
    part("queries-label").textContent = says;
    part("keys-label").textContent = looks[chosen.kind];
    part("queries").replaceChildren(...queries().map(([text, kind], i) => {
      const button = element("button", `piece ${kind}`, text);
      button.type = "button";
      button.addEventListener("pointerenter", () => choose({ query: i }, false));
      button.addEventListener("click", () => choose({ query: i }, false));
      button.addEventListener("focus", () => choose({ query: i }, false));
      return button;
    }));
    part("keys").replaceChildren(...keys().map(([text, kind]) => {
      const key = element("span", `piece key ${kind}`, text);
      key.append(element("span", "share"), element("span", "bar"));
      key.lastChild.append(element("i"));
      return key;
    }));
  };

  const showMap = () => {
    const [rows, columns, weights] = [queries(), keys(), matrix()];
    const longest = (pieces) => Math.max(...pieces.map(([text]) => Math.min(text.length, 12)));
    const cut = (text) => (text.length > 12 ? `${text.slice(0, 11)}…` : text);
    const [left, top] = [longest(rows) * 7.5 + 10, longest(columns) * 6.5 + 14];
    const svg = part("map");
    const [width, height] = [left + CELL * columns.length + 30, top + CELL * rows.length + 4];
    svg.replaceChildren();
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(name, value);
    const from = part("kind").selectedOptions[0].textContent;
    svg.setAttribute("aria-label", `Heat map of ${rows.length} rows and ${columns.length} columns: ${from}. The list beside it says the same for one piece at a time.`);
    columns.forEach(([text], i) => {
      const x = left + CELL * (i + 0.65);
      drawn(svg, "text", { x, y: top - 6, transform: `rotate(-50 ${x} ${top - 6})` }, cut(text));
    });
    rows.forEach(([text], row) => {
      drawn(svg, "text", { x: left - 6, y: top + CELL * (row + 0.7), "text-anchor": "end" }, cut(text));
      weights[row].forEach((weight, column) => {
        const cell = drawn(svg, "rect", {
          x: left + CELL * column, y: top + CELL * row, width: CELL - 1, height: CELL - 1, fill: colour(weight),
        });
        drawn(cell, "title", {}, `${text} → ${columns[column][0]}: ${percent(weight)}`);
        cell.addEventListener("pointerenter", () => choose({ query: row }, false));
      });
    });
    drawn(svg, "rect", { class: "chosen", x: left - 1.5, width: CELL * columns.length + 2, height: CELL + 2 });
    svg.lastChild.dataset.top = top;
  };

  const showEntropy = () => {
    const entropy = map().entropy;
    const heading = element("tr");
    heading.append(element("td"), ...entropy[0].map((_, head) => element("th", "", `head ${head + 1}`)), element("th", "", "all"));
    const rows = entropy.map((heads, layer) => {
      const row = element("tr");
      const cells = [...heads, heads.reduce((sum, value) => sum + value, 0) / heads.length].map((value, place) => {
        const head = place < heads.length ? place : -1;
        const button = element("button", "", value.toFixed(2));
        button.type = "button";
        button.setAttribute("aria-label", `layer ${layer + 1}, ${head < 0 ? "mean of all heads" : `head ${head + 1}`}: ${value.toFixed(2)}`);
        button.setAttribute("aria-pressed", chosen.layer === layer && chosen.head === head);
        button.addEventListener("click", () => {
          choose({ layer, head }, true);
          part("entropy").querySelectorAll("tr")[layer + 1].querySelectorAll("button")[place].focus();
        });
        const cell = element("td");
        cell.append(button);
        return cell;
      });
      row.append(element("th", "", `layer ${layer + 1}`), ...cells);
      return row;
    });
    part("entropy").replaceChildren(heading, ...rows);
  };

  // The part that changes when another piece is pointed at.
  const showQuery = () => {
    const weights = matrix()[chosen.query];
    [...part("queries").children].forEach((button, i) => {
      button.setAttribute("aria-pressed", i === chosen.query);
      button.tabIndex = i === chosen.query ? 0 : -1;
    });
    [...part("keys").children].forEach((key, i) => {
      key.querySelector(".share").textContent = percent(weights[i]);
      key.querySelector("i").style.width = `${100 * weights[i]}%`;
    });
    const frame = part("map").querySelector(".chosen");
    frame.setAttribute("y", Number(frame.dataset.top) + CELL * chosen.query - 1.5);
    const most = weights.map((weight, i) => [weight, keys()[i][0]]).sort((one, other) => other[0] - one[0]).slice(0, 3);
    const shown = most.filter(([weight]) => weight > 0).map(([weight, text]) => `${text} (${percent(weight)})`).join(", ");
    part("says").textContent = `“${queries()[chosen.query][0]}” looks most at ${shown}.`;
  };

  const choose = (change, all) => {
    Object.assign(chosen, change);
    if (all) {
      showControls();
      showPieces();
      showMap();
      showEntropy();
    }
    showQuery();
  };

  for (const name of ["system", "sentence", "kind", "layer", "head"]) {
    part(name).addEventListener("change", (event) => {
      const value = event.target.value;
      choose({ [name]: name === "kind" ? value : Number(value) }, true);
      part(name).focus();
    });
  }
  part("queries").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(queries().length - 1, chosen.query + step));
    part("queries").children[next].focus();
  });
  part("scale").style.background = `linear-gradient(to right, ${CIVIDIS.map((_, i) => colour((i / (CIVIDIS.length - 1)) ** 2)).join(", ")})`;
  document.getElementById("viewer").hidden = false;
  choose({}, true);
})();
