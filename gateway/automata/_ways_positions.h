/* The ways of words in disguise and with edits, for `_ways.c`. */

/* A position that is known. */
static const Position *position_at(const Tables *self, uint64_t number)
{
    return number >= OWN ? &self->nodes[number - OWN] : &self->positions[number];
}

static int is_node(const Tables *self, const Node *at)
{
    return at->trie < self->trie_count && self->tries[at->trie].has && at->node &&
           at->node < self->tries[at->trie].count && at->edits <= MAX_EDITS && at->skip <= MAX_EDITS && at->flags <= MAX_FLAGS;
}

/* What is known of a position, which is asked at first. */
static int know(Tables *self, uint64_t number)
{
    if (number >= OWN ? number - OWN < self->node_count : number < self->position_count && self->positions[number].known)
        return 0;
    PyObject *answer = number >= OWN ? NULL : PyObject_CallFunction(self->ask[LEAD], "I", (unsigned int)number);
    unsigned long long onward;
    unsigned int waits, owner;
    int arrives, may_match, passes;
    Node at;
    int known = answer != NULL && PyArg_ParseTuple(answer, "KIIiip(IIIIII)", &onward, &waits, &owner, &arrives, &may_match,
                                                   &passes, &at.trie, &at.node, &at.edits, &at.flags, &at.skip, &at.swapped);
    Py_XDECREF(answer);
    if (!known || owner >= self->owners || (at.trie != NO_TRIE && !is_node(self, &at))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no such position");
        return FAILED;
    }
    if (number >= self->position_count) {
        uint32_t count = 2 * (uint32_t)number + FIRST_SIZE;
        Position *larger = realloc(self->positions, count * sizeof(Position));
        if (larger == NULL)
            return no_memory();
        memset(larger + self->position_count, 0, (count - self->position_count) * sizeof(Position));
        self->positions = larger;
        self->position_count = count;
    }
    self->positions[number] = (Position){
        onward, waits, owner, 1, (unsigned char)arrives, (unsigned char)may_match, (unsigned char)passes, at,
    };
    return 0;
}

/* The bits of the letters that lead on: `Place.onward`. */
static uint64_t onward(const Tables *self, const Node *at)
{
    const Trie *trie = &self->tries[at->trie];
    if (at->swapped)
        return (uint64_t)1 << at->swapped % LETTER_BITS;
    if (at->edits != trie->edits)
        return UINT64_MAX;
    uint64_t bits = at->skip ? 0 : (uint64_t)1 << PyUnicode_ReadChar(trie->labels, at->node) % LETTER_BITS;
    Py_ssize_t begin = trie->arrays[FIRST][at->node], end = trie->arrays[FIRST][at->node + 1];
    for (uint32_t depth = at->skip; depth; depth--) {
        begin = trie->arrays[FIRST][begin];
        end = trie->arrays[FIRST][end];
    }
    for (; begin < end; begin++)
        bits |= (uint64_t)1 << PyUnicode_ReadChar(trie->labels, begin) % LETTER_BITS;
    return bits;
}

/* The number of a position from which a match is possible but does not end, as `Places` would make it; 0 if none is
   possible, or FAILED where Python must say. */
static int64_t make(Tables *self, const Node *at)
{
    const Trie *trie = &self->tries[at->trie];
    uint32_t node = at->node;
    if (trie->arrays[LONGEST][node] < trie->shortest)
        return 0;
    int ends = at->flags & EXACT && at->flags & PLAIN &&
               (trie->arrays[TO_END][node] + at->edits <= trie->edits || trie->arrays[GUARD][node]);
    int blank = PyUnicode_ReadChar(trie->labels, node) == ' ';
    if (trie->arrays[HEAVIEST][node] < self->ordinary || (!at->skip && (ends || blank)) || self->node_count == OWN)
        return FAILED;
    if (at->skip ? trie->arrays[LONGEST][node] - trie->arrays[LENGTH][node] <= at->skip
                 : trie->arrays[FIRST][node] == trie->arrays[FIRST][node + 1])
        return 0;
    if (self->node_count == self->node_size) {
        uint32_t size = self->node_size ? 2 * self->node_size : FIRST_SIZE;
        Position *larger = realloc(self->nodes, size * sizeof(Position));
        if (larger == NULL)
            return FAILED; /* and Python runs out of memory, too */
        self->nodes = larger;
        self->node_size = size;
    }
    self->nodes[self->node_count] = (Position){onward(self, at), 0, trie->owner, 1, 0, ALL_RIGHTS, 1, *at};
    return OWN + self->node_count++;
}

/* The number of the position that is so; 0 if no match is possible from there: `Places.at`. FAILED with an exception. */
static int64_t number_at(Tables *self, Node at)
{
    at.flags &= ~(uint32_t)(EDGED | JOINED | UNEVEN);
    if (self->tries[at.trie].arrays[LIGHTEST][at.node] >= self->shortest)
        at.flags &= ~(uint32_t)(SECOND_PLAIN | DOUBLED);
    uint64_t key = ((((uint64_t)at.swapped << 5 | at.trie) << 22 | at.node) << 4 | at.edits << 2 | at.skip) << 12 | at.flags;
    const uint32_t *known = find(&self->places, key);
    if (known)
        return *known;
    int64_t number = make(self, &at);
    if (number == FAILED) {
        PyObject *answer = PyObject_CallFunction(self->ask[PLACE], "IIIIII", at.trie, at.node, at.edits, at.flags, at.skip,
                                                 at.swapped);
        number = answer == NULL ? FAILED : PyLong_AsLong(answer);
        Py_XDECREF(answer);
        if (number < 0 || number >= OWN) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "no such position");
            return FAILED;
        }
    }
    return put(&self->places, key, (uint32_t)number) < 0 ? FAILED : number;
}

/* Append to `led` the position that is so, if a match is possible from there. */
static int lead(Tables *self, Node to, Pool *led)
{
    int64_t number = number_at(self, to);
    return number > 0 ? append(led, (uint32_t)number) : (int)number;
}

/* The parent of a node. */
static uint32_t parent(const Trie *trie, uint32_t node)
{
    Py_ssize_t low = 0, high = trie->count;
    while (low + 1 < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (trie->arrays[FIRST][middle] <= node)
            low = middle;
        else
            high = middle;
    }
    return (uint32_t)low;
}

/* To all nodes so far below that a letter leads to; `swapped`: and the letter before it must come next, if it is another. */
static int lead_below(Tables *self, Node from, uint32_t depth, uint32_t letter, int swapped, Pool *led)
{
    const Trie *trie = &self->tries[from.trie];
    Py_ssize_t begin = from.node, end = begin + 1;
    for (; depth; depth--) {
        begin = trie->arrays[FIRST][begin];
        end = trie->arrays[FIRST][end];
    }
    for (;; begin++) {
        begin = PyUnicode_FindChar(trie->labels, letter, begin, end, 1);
        if (begin < 0)
            return begin == -1 ? 0 : FAILED;
        Node to = from;
        to.node = (uint32_t)begin;
        to.skip = 0;
        if (swapped) {
            to.swapped = PyUnicode_ReadChar(trie->labels, parent(trie, to.node));
            if (to.swapped == letter)
                continue;
        }
        if (lead(self, to, led) < 0)
            return FAILED;
    }
}

/* `ObfuscatedWords._letter`, without what other disguises than edits need. */
static int read_letter(Tables *self, const Node *place, uint32_t letter, uint32_t flag, int exact, Pool *led)
{
    Node to = *place;
    uint32_t most = self->tries[place->trie].edits, skip = place->skip;
    to.flags = (to.flags & ~(uint32_t)BLANK) | flag | EXACT | (flag & place->flags & PLAIN ? SECOND_PLAIN : 0);
    if (!exact)
        to.flags &= ~(uint32_t)EXACT;
    int done = lead_below(self, to, skip + 1, letter, 0, led);
    for (to.edits++; !done && to.edits <= most; to.edits++)
        done = lead_below(self, to, skip + 1 + to.edits - place->edits, letter, 0, led);
    if (done || place->edits >= most)
        return done;
    to.edits = place->edits + 1;
    to.flags &= ~(uint32_t)EXACT;
    return lead_below(self, to, skip + 2, letter, 1, led);
}

/* `ObfuscatedWords._step` for a character of these letters: signs, then the plain ones, those that it draws, those that it
   looks like and those that it begins to draw, each behind their number. STOPS: Python must say, since a drawing that has
   begun may lead on. */
static int read_char(Tables *self, const Node *place, uint32_t letters, Pool *led)
{
    const uint32_t sign = self->read.numbers[letters++];
    int done = 0, comes = 0;
    for (int kind = 0; !done && kind < 3; kind++) {
        uint32_t count = self->read.numbers[letters++];
        for (; !done && count; count--) {
            uint32_t letter = self->read.numbers[letters++];
            int exact = kind < 2 || !(sign & SIGN) || (sign & MASKS && place->flags & MASKED);
            comes |= letter == place->swapped;
            if (!place->swapped)
                done = read_letter(self, place, letter, kind < 2 ? PLAIN : sign & MASKS ? MASKED : 0, exact, led);
        }
    }
    Node to = *place;
    to.swapped = 0;
    if (place->swapped)
        return done || !comes ? done : lead(self, to, led);
    size_t known = led->count;
    for (uint32_t count = self->read.numbers[letters++]; !done && count; count--)
        done = read_letter(self, place, self->read.numbers[letters++], 0, 1, led);
    if (!done && led->count > known)
        return STOPS;
    if (done || place->edits >= self->tries[place->trie].edits)
        return done;
    to.edits++;
    to.flags &= ~(uint32_t)EXACT;
    if (lead(self, to, led) < 0 || lead_below(self, to, to.skip + 1, ' ', 0, led) < 0)
        return FAILED;
    to.skip++;
    return lead(self, to, led);
}

/* As `ask_read`, but for a position in a trie and a character of which only letters matter, mostly without Python. */
static int find_read(Tables *self, const Node *place, uint32_t row, const Char *seen, uint32_t *at)
{
    Pool led = {NULL, 0, 0};
    int done = read_char(self, place, seen->begun, &led);
    if (done == STOPS) {
        free(led.numbers);
        return ask_read(self, row, seen->symbol, MAX_POSITION, at);
    }
    *at = (uint32_t)self->read.count;
    if (!done)
        done = append(&self->read, (uint32_t)led.count);
    for (size_t each = 0; !done && each < led.count; each++)
        done = append(&self->read, 0) < 0 || append(&self->read, led.numbers[each]) < 0 ? FAILED : 0;
    free(led.numbers);
    return done ? FAILED : put(&self->reads, (uint64_t)seen->symbol << 32 | row, *at);
}

/* Where a character leads from a position. */
static int follow_position(Tables *self, uint64_t place, const Char *seen, uint32_t symbol, uint32_t start, Set *after)
{
    uint32_t at;
    const uint32_t *known = find(&self->reads, (uint64_t)symbol << 32 | place);
    Node node = position_at(self, place)->at;
    if (known)
        at = *known;
    else if ((seen->count && node.trie != NO_TRIE ? find_read(self, &node, (uint32_t)place, seen, &at)
                                                  : ask_read(self, (uint32_t)place, symbol, MAX_POSITION, &at)) < 0)
        return FAILED;
    int done = GOES_ON;
    for (uint32_t count = self->read.numbers[at++]; done == GOES_ON && count; count--, at += 2) {
        uint32_t target = self->read.numbers[at + 1];
        done = know(self, target) < 0 ? FAILED : add(after, target, 0, start);
    }
    return done;
}

/* Is a match certain behind a character of this kind, whatever follows? And without what no longer can be one. `rights`:
   zeros, of each owner. */
static int settle(const Tables *self, uint32_t kind, Set *after, unsigned char *rights)
{
    uint32_t kept = 0;
    for (uint32_t at = 0; at < after->count; at++) {
        const Position *reached = position_at(self, after->ways[at].place);
        if (reached->passes)
            continue;
        rights[reached->owner] |= reached->arrives >> kind & 1 ? ALL_RIGHTS : reached->waits >> KINDS * kind & ALL_RIGHTS;
        if (rights[reached->owner] == ALL_RIGHTS)
            return STOPS;
    }
    for (uint32_t at = 0; at < after->count; at++) {
        const Position *reached = position_at(self, after->ways[at].place);
        rights[reached->owner] = 0;
        if (reached->passes || reached->may_match >> kind & 1)
            after->ways[kept++] = after->ways[at]; /* the slots are not asked again */
    }
    after->count = kept;
    return GOES_ON;
}

/* Where positions lead with a character, as `StateMachine._follow` has it. */
static int follow_positions(Tables *self, const Char *seen, uint32_t left, uint32_t start, const Set *now, Set *after,
                            unsigned char *rights)
{
    int done = GOES_ON;
    for (uint32_t at = 0; at < now->count; at++)
        if (position_at(self, now->ways[at].place)->waits >> (KINDS * left + seen->kind) & 1)
            return STOPS;
    for (uint32_t at = 0; done == GOES_ON && at < now->count; at++)
        if (position_at(self, now->ways[at].place)->onward & seen->reads)
            done = follow_position(self, now->ways[at].place, seen, seen->symbol, now->ways[at].start, after);
    if (done == GOES_ON && know(self, 0) < 0)
        return FAILED;
    if (done == GOES_ON) /* the position before any */
        done = follow_position(self, 0, seen, seen->symbol + left, start, after);
    return done == GOES_ON ? settle(self, seen->kind, after, rights) : done;
}
