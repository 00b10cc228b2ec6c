/* `LiteralMachine.walk` of gateway/automata/literals.py, to the letter: that one says what is right, and the same tests
   run for both. Only the stable ABI is used; every index is checked against the length it belongs to. */

#include "../attributes.h"
#include "walk.h"
#include <stdint.h>
#include <string.h>

#define ASCII 128
#define ROOT 0
#define AS_BEFORE 2  /* of gateway.automata.trie */
#define EMPHASIS '_' /* of gateway.automata.edges */

enum { UNKNOWN = -3, FAILED = -2, SEVERAL = -1 }; /* instead of a folded character */

enum { FIRST, FAIL, OUT, LIVE, BEFORE, CLOSER, BUFFERS }; /* of numbers up to LIVE, of bytes from BEFORE on */

enum { LABELS, ROOTS, IS_WORD_CHAR, UNITS, STATES, REFERENCES };

/* A machine's trie, as it is walked. */
typedef struct {
    PyObject_HEAD
    PyObject *at[REFERENCES];
    Py_buffer buffers[BUFFERS];
    Py_ssize_t size; /* nodes */
    Py_ssize_t countdown;
    const char *ascii; /* the labels, where all of them are ASCII; borrowed from LABELS */
    int spaces, edges_hold;
    int32_t units[ASCII]; /* what each character folds to */
    uint32_t roots[ASCII];
    unsigned char is_word_char[ASCII];
} Tables;

static struct {
    Attribute arrival, left, live, new_line, node, pending; /* of a state */
    Attribute closer, edges_hold, kept_one_in, spaces, states, tables, trie, units; /* of a machine */
    PyObject *isascii, *keep_state, *no_words;
} names;
static PyTypeObject *tables_type;

#define CALL(object, name, ...) PyObject_CallMethodObjArgs(object, name, __VA_ARGS__, NULL)
#define NUMBERS(which) ((const uint32_t *)tables->buffers[which].buf)
#define BYTES(which) ((const unsigned char *)tables->buffers[which].buf)

/* -- tables -------------------------------------------------------------------------------------------------------- */

/* -1 with an exception. `count`: elements that it must have. */
static int open_buffer(Tables *tables, int which, PyObject *source, Py_ssize_t count)
{
    Py_buffer *buffer = &tables->buffers[which];
    const Py_ssize_t width = which < BEFORE ? (Py_ssize_t)sizeof(uint32_t) : 1;
    if (source == NULL || PyObject_GetBuffer(source, buffer, PyBUF_SIMPLE) < 0)
        return -1;
    if (buffer->len == count * width && (which >= BEFORE || (uintptr_t)buffer->buf % sizeof(uint32_t) == 0))
        return 0;
    PyErr_SetString(PyExc_ValueError, "a table of a trie has another size");
    return -1;
}

/* -1 with an exception. */
static int open_root(Tables *tables)
{
    for (int code = 0; code < ASCII; code++) {
        PyObject *key = PyUnicode_FromOrdinal(code);
        PyObject *child = key == NULL ? NULL : PyDict_GetItemWithError(tables->at[ROOTS], key); /* borrowed */
        const Py_ssize_t node = child == NULL ? ROOT : PyLong_AsSsize_t(child);
        int is_word_char = 0;
        if (key != NULL && !PyErr_Occurred() && tables->at[IS_WORD_CHAR] != Py_None) {
            PyObject *found = PyObject_CallFunctionObjArgs(tables->at[IS_WORD_CHAR], key, NULL);
            is_word_char = found == NULL ? -1 : PyObject_IsTrue(found);
            Py_XDECREF(found);
        }
        Py_XDECREF(key);
        if (PyErr_Occurred())
            return -1;
        tables->roots[code] = node < 0 || node >= tables->size ? ROOT : (uint32_t)node;
        tables->is_word_char[code] = (unsigned char)is_word_char;
        tables->units[code] = UNKNOWN;
    }
    return 0;
}

/* -1 with an exception. */
static int fill(Tables *tables, PyObject *machine, PyObject *trie)
{
    static const char *const arrays[] = {"first", "fail", "out", "live", "before"};
    static const char *const parts[] = {"labels", "root", "_is_word_char"};
    for (int which = LABELS; which <= IS_WORD_CHAR; which++)
        if ((tables->at[which] = PyObject_GetAttrString(trie, parts[which])) == NULL)
            return -1;
    tables->at[UNITS] = get(machine, &names.units);
    tables->at[STATES] = get(machine, &names.states);
    tables->spaces = is_true(machine, &names.spaces);
    tables->edges_hold = is_true(machine, &names.edges_hold);
    if (PyErr_Occurred())
        return -1;
    if (!PyUnicode_Check(tables->at[LABELS]) || !PyDict_Check(tables->at[ROOTS]) || !PyDict_Check(tables->at[STATES])) {
        PyErr_SetString(PyExc_TypeError, "a trie has text as labels and dictionaries");
        return -1;
    }
    tables->size = PyUnicode_GetLength(tables->at[LABELS]);
    PyObject *is_ascii = PyObject_CallMethodObjArgs(tables->at[LABELS], names.isascii, NULL);
    if (is_ascii == Py_True)
        tables->ascii = PyUnicode_AsUTF8AndSize(tables->at[LABELS], NULL);
    Py_XDECREF(is_ascii);
    if (PyErr_Occurred())
        return -1;
    for (int which = FIRST; which <= BEFORE; which++) {
        PyObject *source = PyObject_GetAttrString(trie, arrays[which]);
        const int opened = open_buffer(tables, which, source, tables->size + (which == FIRST));
        Py_XDECREF(source);
        if (opened < 0)
            return -1;
    }
    if (tables->spaces) {
        PyObject *closer = get(machine, &names.closer);
        const int opened = open_buffer(tables, CLOSER, closer, tables->size);
        Py_XDECREF(closer);
        if (opened < 0)
            return -1;
    }
    return open_root(tables);
}

/* Those of a machine, a new reference; made with its first walk. */
static Tables *tables_of(PyObject *machine)
{
    PyObject *known = get(machine, &names.tables);
    if (known == NULL || Py_IS_TYPE(known, tables_type))
        return (Tables *)known;
    Py_DECREF(known);
    PyObject *trie = get(machine, &names.trie);
    Tables *tables = trie == NULL ? NULL : (Tables *)PyType_GenericAlloc(tables_type, 0);
    if (tables != NULL && (fill(tables, machine, trie) < 0 || set(machine, &names.tables, (PyObject *)tables) < 0)) {
        Py_CLEAR(tables);
    }
    Py_XDECREF(trie);
    return tables;
}

static void dealloc(PyObject *object)
{
    Tables *tables = (Tables *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (int which = 0; which < BUFFERS; which++)
        if (tables->buffers[which].obj != NULL)
            PyBuffer_Release(&tables->buffers[which]);
    for (int which = 0; which < REFERENCES; which++)
        Py_XDECREF(tables->at[which]);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* -- the walk ------------------------------------------------------------------------------------------------------ */

/* The folded character, or why there is none. */
static int32_t unit_of(Tables *tables, Py_UCS4 character)
{
    if (character < ASCII && tables->units[character] != UNKNOWN)
        return tables->units[character];
    PyObject *key = PyUnicode_FromOrdinal((int)character);
    PyObject *found = key == NULL ? NULL : PyObject_GetItem(tables->at[UNITS], key);
    Py_XDECREF(key);
    const Py_UCS4 folded = found == NULL ? (Py_UCS4)-1 : found == Py_None ? 0 : PyUnicode_ReadChar(found, 0);
    const int32_t unit = folded == (Py_UCS4)-1 ? FAILED : found == Py_None ? SEVERAL : (int32_t)folded;
    Py_XDECREF(found);
    if (character < ASCII && unit != FAILED)
        tables->units[character] = unit;
    return unit;
}

static int is_line_end(Py_UCS4 character)
{
    return (character >= '\n' && character <= '\r') || character == 0x85 || character == 0x2028 || character == 0x2029;
}

/* From the root: the node that a folded character leads to, and into `left`; -1 with an exception. */
static Py_ssize_t from_root(const Tables *tables, int32_t unit, int *left)
{
    if (unit < ASCII) {
        if (tables->roots[unit] == ROOT && unit != EMPHASIS)
            *left = tables->is_word_char[unit];
        return tables->roots[unit];
    }
    PyObject *key = PyUnicode_FromOrdinal(unit);
    PyObject *child = key == NULL ? NULL : PyDict_GetItemWithError(tables->at[ROOTS], key); /* borrowed */
    const Py_ssize_t node = child == NULL ? ROOT : PyLong_AsSsize_t(child);
    if (node == ROOT && !PyErr_Occurred()) {
        *left = 0;
        if (tables->at[IS_WORD_CHAR] != Py_None) {
            PyObject *found = PyObject_CallFunctionObjArgs(tables->at[IS_WORD_CHAR], key, NULL);
            *left = found == NULL ? -1 : PyObject_IsTrue(found);
            Py_XDECREF(found);
        }
    }
    Py_XDECREF(key);
    return PyErr_Occurred() ? -1 : node;
}

/* The node among these that a folded character leads to; -1 if none does, -2 with an exception. */
static Py_ssize_t child_of(const Tables *tables, Py_ssize_t begin, Py_ssize_t end, int32_t unit)
{
    if (tables->ascii == NULL)
        return begin == end ? -1 : PyUnicode_FindChar(tables->at[LABELS], (Py_UCS4)unit, begin, end, 1);
    if (unit >= ASCII || end > tables->size)
        return -1;
    for (; begin < end; begin++)
        if (tables->ascii[begin] == unit)
            return begin;
    return -1;
}

/* What `Trie.step` does. -1 with an exception, -2 where a blank takes a further one. */
static Py_ssize_t step(const Tables *tables, Py_ssize_t node, int *left, int32_t unit)
{
    const uint32_t *first = NUMBERS(FIRST), *fail = NUMBERS(FAIL);
    while (node != ROOT) {
        if (node < 0 || node >= tables->size) {
            PyErr_SetString(PyExc_ValueError, "a trie has no such node");
            return -1;
        }
        const Py_ssize_t child = child_of(tables, first[node], first[node + 1], unit);
        if (child > 0)
            return child;
        if (child == -2)
            return -1;
        if (unit == ' ' && tables->spaces && PyUnicode_ReadChar(tables->at[LABELS], node) == ' ')
            return -2;
        if (BYTES(BEFORE)[node] != AS_BEFORE)
            *left = BYTES(BEFORE)[node] != 0;
        node = fail[node];
    }
    return from_root(tables, unit, left);
}

/* A state that is not kept, a new reference. `like`: another one. */
static PyObject *fresh_state(const Tables *tables, PyObject *like, Py_ssize_t node, int left)
{
    PyObject *state = PyObject_CallNoArgs((PyObject *)Py_TYPE(like));
    if (state == NULL)
        return NULL;
    const Py_ssize_t live = tables->edges_hold ? -1 : (Py_ssize_t)NUMBERS(LIVE)[node];
    if (set_number(state, &names.node, node) < 0 || set(state, &names.left, left ? Py_True : Py_False) < 0 ||
        set(state, &names.pending, names.no_words) < 0 || set(state, &names.arrival, Py_None) < 0 ||
        set(state, &names.new_line, Py_False) < 0 || set_number(state, &names.live, live) < 0)
        Py_CLEAR(state);
    return state;
}

/* The state of a node, a new reference; one in a few of those that are not kept yet is kept from now on. */
static PyObject *state_of(Tables *tables, PyObject *machine, PyObject *like, Py_ssize_t node, int left)
{
    PyObject *key = PyLong_FromSsize_t(2 * node + left);
    PyObject *known = key == NULL ? NULL : PyDict_GetItemWithError(tables->at[STATES], key); /* borrowed */
    Py_XDECREF(key);
    if (known != NULL || PyErr_Occurred())
        return Py_XNewRef(known);
    if (--tables->countdown >= 0)
        return fresh_state(tables, like, node, left);
    tables->countdown = get_number(machine, &names.kept_one_in) - 1;
    PyObject *number = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(node);
    PyObject *state = number == NULL ? NULL : CALL(machine, names.keep_state, number, left ? Py_True : Py_False);
    Py_XDECREF(number);
    return state;
}

/* The state behind the text, a new reference, None where only single steps will do; NULL with an exception. */
static PyObject *walk_tables(Tables *tables, PyObject *machine, PyObject *from, PyObject *text)
{
    const int pending = is_true(from, &names.pending), new_line = is_true(from, &names.new_line);
    int left = is_true(from, &names.left);
    Py_ssize_t node = get_number(from, &names.node);
    if (PyErr_Occurred())
        return NULL;
    if (pending || new_line)
        return Py_NewRef(Py_None);
    const Py_ssize_t length = PyUnicode_GetLength(text);
    for (Py_ssize_t at = 0; at < length; at++) {
        const Py_UCS4 character = PyUnicode_ReadChar(text, at);
        const int32_t unit = unit_of(tables, character);
        node = unit == FAILED ? -1 : unit == SEVERAL ? -2 : step(tables, node, &left, unit);
        if (node < 0)
            return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
        if (node >= tables->size) {
            PyErr_SetString(PyExc_ValueError, "a trie has no such node");
            return NULL;
        }
        if (NUMBERS(OUT)[node] || (tables->spaces && is_line_end(character) && BYTES(CLOSER)[node]))
            return Py_NewRef(Py_None);
    }
    return state_of(tables, machine, from, node, left);
}

/* `walk` of a machine, for modules in C, too. */
static PyObject *walk_machine(PyObject *machine, PyObject *from, PyObject *text)
{
    if (!PyDict_Check(from) || !PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "walk takes a state and a text");
        return NULL;
    }
    Tables *tables = tables_of(machine);
    PyObject *reached = tables == NULL ? NULL : walk_tables(tables, machine, from, text);
    Py_XDECREF((PyObject *)tables);
    return reached;
}

static const Walk entry = {walk_machine};

PyDoc_STRVAR(walk_doc, "See literals.py.");

static PyObject *walk(PyObject *machine, PyObject *const *arguments, Py_ssize_t count)
{
    if (count == 2)
        return walk_machine(machine, arguments[0], arguments[1]);
    PyErr_SetString(PyExc_TypeError, "walk takes a state and a text");
    return NULL;
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

static PyMethodDef walk_method = {"walk", (PyCFunction)(void (*)(void))walk, METH_FASTCALL, walk_doc};

/* `walk` as a method of a class. */
static PyObject *method_of(PyObject *module, PyObject *type)
{
    (void)module;
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "a method belongs to a class");
        return NULL;
    }
    return PyDescr_NewMethod((PyTypeObject *)type, &walk_method);
}

static PyMethodDef functions[] = {
    {"method_of", method_of, METH_O, "`walk` as a method of a class."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tables_slots[] = {{Py_tp_dealloc, dealloc}, {Py_tp_doc, "A machine's trie."}, {0, NULL}};

static PyType_Spec tables_spec = {
    "gateway.automata._walk.Tables", sizeof(Tables), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, tables_slots,
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_walk", "LiteralMachine.walk in C.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__walk(void)
{
    const struct {
        Attribute *attribute;
        const char *name;
    } opened[] = {
        {&names.arrival, "arrival"}, {&names.left, "left"}, {&names.live, "live"}, {&names.new_line, "new_line"},
        {&names.node, "node"}, {&names.pending, "pending"},
        {&names.closer, "_closer"}, {&names.edges_hold, "_edges_hold"}, {&names.kept_one_in, "_kept_one_in"},
        {&names.spaces, "_spaces"}, {&names.states, "_states"}, {&names.tables, "_tables"}, {&names.trie, "_trie"},
        {&names.units, "_units"},
    };
    for (size_t at = 0; at < sizeof(opened) / sizeof(opened[0]); at++)
        if (open_attribute(opened[at].attribute, opened[at].name) < 0)
            return NULL;
    names.isascii = PyUnicode_InternFromString("isascii");
    names.keep_state = PyUnicode_InternFromString("_keep_state");
    names.no_words = PyTuple_New(0);
    tables_type = (PyTypeObject *)PyType_FromSpec(&tables_spec);
    if (names.isascii == NULL || names.keep_state == NULL || names.no_words == NULL || tables_type == NULL)
        return NULL;
    PyObject *module = PyModule_Create(&module_definition);
    PyObject *capsule = module == NULL ? NULL : PyCapsule_New((void *)&entry, WALK_NAME, NULL);
    if (capsule == NULL || PyModule_AddObjectRef(module, "entry", capsule) < 0)
        Py_CLEAR(module);
    Py_XDECREF(capsule);
    return module;
}
