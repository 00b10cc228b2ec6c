/* The ways through an automaton that a text leaves open, followed without a determinised state for each character.
   `gateway.automata.native_words` and `native_codes` say what the numbers stand for: what is not in a table yet is asked
   of Python, once.

   Only the stable ABI is used. Ways come from Python as bytes and are not trusted: no number in them is an index that is
   not checked. Python may run other threads while it answers, so nothing of a call is kept in an object, and no pointer
   into a table is kept while Python is asked. */

#include "_ways_tables.h"
#include "_ways_codes.h"
#include "_ways_positions.h"

/* Where all ways lead with a text, in `now`. `kinds`: what stands before each character, and at the end; behind that,
   zeros of each owner. */
static int follow_text(Tables *self, PyObject *text, Py_ssize_t length, uint32_t start, Set *now, Set *after,
                       unsigned char *kinds)
{
    for (Py_ssize_t at = 0; at < length; at++, start++) {
        uint32_t index = char_of(self, PyUnicode_ReadChar(text, at));
        if (!index)
            return FAILED;
        Char seen = self->chars[index - 1];
        if (seen.stops)
            return STOPS;
        empty(after);
        int done = self->chains ? follow_codes(self, &seen, start, now, after)
                                : follow_positions(self, &seen, kinds[at], start, now, after, kinds + length + 1);
        if (done != GOES_ON)
            return done;
        Set other = *now;
        *now = *after;
        *after = other;
        kinds[at + 1] = (unsigned char)seen.kind;
    }
    return GOES_ON;
}

/* A set of the ways that Python has as bytes. */
static int unpack(Tables *self, const char *bytes, Py_ssize_t size, Set *now)
{
    int done = GOES_ON;
    for (Py_ssize_t at = 0; done == GOES_ON && at < size / (Py_ssize_t)sizeof(Way); at++) {
        Way way;
        memcpy(&way, bytes + at * (Py_ssize_t)sizeof(Way), sizeof(Way));
        if (!self->chains)
            done = know(self, way.place);
        else if ((Py_ssize_t)(way.place >> 16 * STAGES) >= self->chains)
            done = STOPS;
        if (done == GOES_ON)
            done = add(now, way.place, way.spot, way.start);
    }
    return done;
}

/* One of the moves of a `Leap`: of a register, with KINDS, or of what begins behind one of `before`. States are many, and
   each has several moves: so what is equal is one object. */
static PyObject *move_of(Tables *self, uint32_t number, uint32_t kind, PyObject *before)
{
    if (before != self->before) {
        for (int each = 0; each < KINDS * MOVES; each++)
            Py_CLEAR(self->moves[each / MOVES][each % MOVES]);
        PyObject *last = self->before;
        self->before = Py_NewRef(before);
        Py_XDECREF(last);
    }
    PyObject **known = number < MOVES ? &self->moves[kind][number] : NULL;
    if (known != NULL && *known != NULL)
        return Py_NewRef(*known);
    PyObject *state = kind == KINDS ? Py_None : PyTuple_GetItem(before, kind);
    PyObject *move = state == NULL ? NULL : Py_BuildValue("(IO)", number, state);
    if (move != NULL && known != NULL && *known == NULL)
        *known = Py_NewRef(move);
    return move;
}

/* Number the beginnings of sorted ways from 0 on: of each, as in a `Leap`, the number that it had, below `count`, or the
   offset in the text and which of `before` the state before it is. */
static PyObject *numbered(Tables *self, Set *set, uint32_t count, PyObject *before, const unsigned char *kinds)
{
    uint32_t starts = 0, last = 0, of = 0;
    for (uint32_t at = 0; at < set->count; at++)
        starts += !at || set->ways[at].start != set->ways[at - 1].start;
    PyObject *moves = PyTuple_New(starts);
    for (uint32_t at = 0; moves != NULL && at < set->count; at++) {
        if (!at || set->ways[at].start != last) {
            last = set->ways[at].start;
            PyObject *move = last < count ? move_of(self, last, KINDS, before)
                                          : move_of(self, last - count, kinds[last - count], before);
            if (move == NULL || PyTuple_SetItem(moves, of++, move) < 0)
                Py_CLEAR(moves);
        }
        set->ways[at].start = of - 1;
    }
    return moves;
}

/* What `step` returns. */
static PyObject *described(Tables *self, Set *now, uint32_t count, PyObject *before, const unsigned char *kinds,
                           Py_ssize_t length)
{
    uint32_t waits = 0;
    sort(now);
    for (uint32_t at = 0; !self->chains && at < now->count; at++)
        waits |= position_at(self, now->ways[at].place)->waits;
    PyObject *moves = numbered(self, now, count, before, kinds);
    return moves == NULL ? NULL
                         : Py_BuildValue("(y#NiI)", (const char *)now->ways, (Py_ssize_t)(now->count * sizeof(Way)), moves,
                                         (int)kinds[length], (unsigned int)waits);
}

PyDoc_STRVAR(step_doc,
             "step(ways, count, left, text, before): the ways behind a text, how their beginnings have moved, as in a\n"
             "`Leap`, what stands before the next character, and what they wait for. `count`: of the ways' beginnings;\n"
             "`left` stands before the text; `before`: of each kind the state in which it stands before. None if Python\n"
             "must say.");

static PyObject *step(PyObject *object, PyObject *const *given, Py_ssize_t given_count)
{
    Tables *self = (Tables *)object;
    char *bytes;
    Py_ssize_t size;
    if (given_count != 5 || !PyUnicode_Check(given[3]) || !PyTuple_Check(given[4])) {
        PyErr_SetString(PyExc_TypeError, "ways, two numbers, a text and states");
        return NULL;
    }
    unsigned long count = PyLong_AsUnsignedLong(given[1]), left = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLong(given[2]);
    Py_ssize_t length = PyUnicode_GetLength(given[3]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(given[0], &bytes, &size) < 0)
        return NULL;
    if (count > UINT32_MAX / 2 || length > UINT32_MAX / 2 || left >= KINDS || self->ask[CHAR] == NULL)
        Py_RETURN_NONE;
    Set now, after;
    unsigned char *kinds = calloc((size_t)length + 1 + self->owners, 1);
    int done = (open_set(&now, FIRST_SIZE) < 0) | (open_set(&after, FIRST_SIZE) < 0) ? FAILED : GOES_ON;
    if (kinds == NULL)
        done = no_memory();
    else
        kinds[0] = (unsigned char)left;
    if (done == GOES_ON)
        done = unpack(self, bytes, size, &now);
    if (done == GOES_ON)
        done = follow_text(self, given[3], length, (uint32_t)count, &now, &after, kinds);
    PyObject *result = done == STOPS ? Py_NewRef(Py_None) : NULL;
    if (done == GOES_ON)
        result = described(self, &now, (uint32_t)count, given[4], kinds, length);
    close_set(&now);
    close_set(&after);
    free(kinds);
    return result;
}

PyDoc_STRVAR(number_doc, "number(trie, node, edits, flags, skip, swapped): of the position that is so; 0: there is none.");

static PyObject *number(PyObject *object, PyObject *arguments)
{
    Tables *self = (Tables *)object;
    Node at;
    if (!PyArg_ParseTuple(arguments, "IIIIII", &at.trie, &at.node, &at.edits, &at.flags, &at.skip, &at.swapped))
        return NULL;
    if (!is_node(self, &at)) {
        PyErr_SetString(PyExc_ValueError, "no such node");
        return NULL;
    }
    int64_t found = number_at(self, at);
    return found < 0 ? NULL : PyLong_FromLong((long)found);
}

PyDoc_STRVAR(node_doc, "node(number): the reverse, of numbers that Python has not given.");

static PyObject *node(PyObject *object, PyObject *given)
{
    const Tables *self = (Tables *)object;
    unsigned long number = PyLong_AsUnsignedLong(given);
    if (PyErr_Occurred())
        return NULL;
    if (number < OWN || number - OWN >= self->node_count) {
        PyErr_SetString(PyExc_ValueError, "no such number");
        return NULL;
    }
    const Node *at = &self->nodes[number - OWN].at;
    return Py_BuildValue("(IIIIII)", at->trie, at->node, at->edits, at->flags, at->skip, at->swapped);
}

PyDoc_STRVAR(size_doc, "size(): how much is known.");

static PyObject *size(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    const Tables *self = (Tables *)object;
    return PyLong_FromSize_t((size_t)self->reads.count + self->leads.count + self->places.count + self->char_count);
}

/* Of a code of bits: the width, how many of a first digit's bits may count, and what each symbol is. */
static int open_bits(Bits *bits, PyObject *description)
{
    const char *counts, *signs;
    Py_ssize_t count, size;
    if (!PyArg_ParseTuple(description, "Iy#y#", &bits->width, &counts, &count, &signs, &size))
        return -1;
    int right = bits->width > 0 && bits->width < 8 && count <= MAX_BITS && size == sizeof(bits->signs);
    for (Py_ssize_t at = 0; right && at < count; at++)
        right = counts[at] >= 0 && counts[at] <= 8;
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "bits");
        return -1;
    }
    bits->count = (uint32_t)count;
    memcpy(bits->counts, counts, (size_t)count);
    memcpy(bits->signs, signs, sizeof(bits->signs));
    return 0;
}

/* The labels of a trie, its owner, how many edits there may be and how long words must be, and its arrays. Nothing for one
   that only Python follows. */
static int open_trie(Trie *trie, PyObject *description)
{
    PyObject *arrays[ARRAYS];
    if (!PyTuple_Check(description) || PyTuple_Size(description) == 0)
        return 0;
    if (!PyArg_ParseTuple(description, "UIIIOOOOOOO", &trie->labels, &trie->owner, &trie->edits, &trie->shortest, &arrays[0],
                          &arrays[1], &arrays[2], &arrays[3], &arrays[4], &arrays[5], &arrays[6]))
        return -1;
    Py_INCREF(trie->labels);
    trie->count = PyUnicode_GetLength(trie->labels);
    int right = trie->count <= MAX_NODES && trie->edits <= MAX_EDITS;
    for (int at = 0; at < ARRAYS; at++) {
        if (PyObject_GetBuffer(arrays[at], &trie->buffers[at], PyBUF_SIMPLE) < 0)
            return -1;
        trie->arrays[at] = trie->buffers[at].buf;
        right = right && trie->buffers[at].len == (trie->count + (at == FIRST)) * (Py_ssize_t)sizeof(uint32_t);
    }
    for (Py_ssize_t node = 0; right && node <= trie->count; node++)
        right = trie->arrays[FIRST][node] <= trie->count &&
                (!node || trie->arrays[FIRST][node - 1] <= trie->arrays[FIRST][node]);
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "no trie");
        return -1;
    }
    trie->has = 1;
    return 0;
}

static int tables_init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    Tables *self = (Tables *)object;
    const char *stages;
    Py_ssize_t size;
    PyObject *ask[QUESTIONS], *bits, *tries;
    if (keywords != NULL || self->stages != NULL) {
        PyErr_SetString(PyExc_TypeError, "once, without keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "OOOOIy#O!O!II", &ask[CHAR], &ask[READ], &ask[LEAD], &ask[PLACE], &self->owners, &stages,
                          &size, &PyTuple_Type, &bits, &PyTuple_Type, &tries, &self->shortest, &self->ordinary))
        return -1;
    Py_ssize_t tables = PyTuple_Size(bits);
    int right = tables <= MAX_BITS && size % STAGES == 0 && PyTuple_Size(tries) <= MAX_TRIES;
    for (Py_ssize_t at = 0; right && at < size; at++)
        right = (unsigned char)stages[at] < BITS + tables && (stages[at] != NO_STAGE || at % STAGES);
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "stages");
        return -1;
    }
    for (Py_ssize_t at = 0; at < tables; at++)
        if (open_bits(&self->bits[at], PyTuple_GetItem(bits, at)) < 0)
            return -1;
    self->stages = malloc((size_t)size + 1);
    self->tries = calloc((size_t)PyTuple_Size(tries) + 1, sizeof(Trie));
    if (self->stages == NULL || self->tries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; self->trie_count < (uint32_t)PyTuple_Size(tries); self->trie_count++)
        if (open_trie(&self->tries[self->trie_count], PyTuple_GetItem(tries, self->trie_count)) < 0) {
            self->trie_count++;
            return -1;
        }
    memcpy(self->stages, stages, (size_t)size);
    self->chains = size / STAGES;
    for (int at = 0; at < QUESTIONS; at++)
        self->ask[at] = Py_NewRef(ask[at]);
    return 0;
}

static int tables_traverse(PyObject *object, visitproc visit, void *arg)
{
    const Tables *self = (Tables *)object;
    Py_VISIT(Py_TYPE(object));
    for (int at = 0; at < QUESTIONS; at++)
        Py_VISIT(self->ask[at]);
    for (int at = 0; at < (KINDS + 1) * MOVES; at++)
        Py_VISIT(self->moves[at / MOVES][at % MOVES]);
    Py_VISIT(self->before);
    return 0;
}

static int tables_clear(PyObject *object)
{
    Tables *self = (Tables *)object;
    for (int at = 0; at < QUESTIONS; at++)
        Py_CLEAR(self->ask[at]);
    for (int at = 0; at < (KINDS + 1) * MOVES; at++)
        Py_CLEAR(self->moves[at / MOVES][at % MOVES]);
    Py_CLEAR(self->before);
    return 0;
}

static void tables_dealloc(PyObject *object)
{
    Tables *self = (Tables *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    tables_clear(object);
    for (uint32_t at = 0; at < self->trie_count; at++) {
        Py_XDECREF(self->tries[at].labels);
        for (int array = 0; array < ARRAYS; array++)
            PyBuffer_Release(&self->tries[at].buffers[array]);
    }
    free(self->tries);
    Map *maps[] = {&self->others, &self->reads, &self->leads, &self->places};
    for (size_t at = 0; at < sizeof(maps) / sizeof(maps[0]); at++) {
        free(maps[at]->keys);
        free(maps[at]->values);
    }
    free(self->read.numbers);
    free(self->chars);
    free(self->begun);
    free(self->positions);
    free(self->nodes);
    free(self->stages);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef tables_methods[] = {
    {"step", (PyCFunction)(void (*)(void))step, METH_FASTCALL, step_doc},
    {"number", number, METH_VARARGS, number_doc},
    {"node", node, METH_O, node_doc},
    {"size", size, METH_NOARGS, size_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tables_slots[] = {
    {Py_tp_init, tables_init},         {Py_tp_new, PyType_GenericNew}, {Py_tp_dealloc, tables_dealloc},
    {Py_tp_traverse, tables_traverse}, {Py_tp_clear, tables_clear},     {Py_tp_methods, tables_methods},
    {Py_tp_doc, "See native_words.py."}, {0, NULL},
};

static PyType_Spec tables_spec = {
    "gateway.automata._ways.Tables", sizeof(Tables), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, tables_slots,
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_ways", "Open ways of automata of words, in C.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__ways(void)
{
    PyObject *module = PyModule_Create(&module_definition);
    PyObject *type = module == NULL ? NULL : PyType_FromSpec(&tables_spec);
    if (type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
