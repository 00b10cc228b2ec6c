/* `Scanner.scan_quickly`, `over_words` and `over_patterns` of gateway/censor/scanner.py, to the letter: those say what is
   right, and the same tests run for both. Only the stable ABI is used. Every object that is read is checked for its type
   where Python code could have put another there. */

#include "../attributes.h"
#include "../automata/walk.h"

static struct {
    Attribute literals, patterns, readings, scanned, unusual;           /* of a scanner */
    Attribute folded, jumps, machine, state;                            /* of a word automaton's cursor */
    Attribute exact, max_hold, pattern_machine, quick;                  /* of a pattern machine's */
    Attribute arrival, leaps, live, moves, pattern_live;                /* of states */
    PyObject *drop_carried, *leap, *walk, *empty, *undecided, *walking;
} names;
static const Walk *walk_of_tries; /* NULL where it is not in C */

#define MAX_LEAP 16 /* of gateway.automata.machine */
#define FEW 16      /* cursors of almost every scanner */
#define CALL(object, name, ...) PyObject_CallMethodObjArgs(object, name, __VA_ARGS__, NULL)

static PyObject *wrong(const char *problem)
{
    PyErr_SetString(PyExc_TypeError, problem);
    return NULL;
}

#include "_cursors.h"

/* -- all of them --------------------------------------------------------------------------------------------------- */

/* Where a cursor gets to with a text; references. */
typedef struct {
    PyObject *cursor, *place;
    int is_words;
} Step;

/* Where a word automaton's cursor gets to, a new reference; None where a character is remarkable, NULL with an exception. */
static PyObject *try_words(PyObject *cursor, PyObject *text)
{
    const int jumps = is_true(cursor, &names.jumps);
    PyObject *machine = jumps ? NULL : get(cursor, &names.machine);
    PyObject *state = machine == NULL ? NULL : get(cursor, &names.state);
    PyObject *place = jumps > 0 ? Py_NewRef(Py_None) : state == NULL ? NULL : over_words(machine, state, text);
    Py_XDECREF(machine);
    Py_XDECREF(state);
    return place;
}

/* Where all cursors get to; `tried` counts them. -1 where a character is remarkable, or with an exception. */
static int try_all(Step *steps, PyObject *words, PyObject *patterns, PyObject *text, Py_ssize_t scanned, Py_ssize_t *tried)
{
    const Py_ssize_t length = PyUnicode_GetLength(text), count = PyList_Size(words), all = count + PyList_Size(patterns);
    for (*tried = 0; *tried < all; ++*tried) {
        const Py_ssize_t at = *tried;
        PyObject *cursor = at < count ? PyList_GetItem(words, at) : PyList_GetItem(patterns, at - count); /* borrowed */
        if (cursor == NULL)
            return -1;
        Py_INCREF(cursor);
        PyObject *place = at < count ? try_words(cursor, text) : try_quickly(cursor, text, length, scanned);
        if (place == NULL || place == Py_None) {
            Py_DECREF(cursor);
            Py_XDECREF(place);
            return -1;
        }
        steps[at] = (Step){cursor, place, at < count};
    }
    return 0;
}

/* Takes the text with all cursors, or with none; the length of the live suffix, -1 where a character is remarkable, -2
   with an exception. */
static Py_ssize_t take(Step *steps, PyObject *words, PyObject *patterns, PyObject *text, Py_ssize_t scanned)
{
    const Py_ssize_t length = PyUnicode_GetLength(text);
    Py_ssize_t tried, live = try_all(steps, words, patterns, text, scanned, &tried);
    for (Py_ssize_t at = tried; at > 0; at--) {
        const Step step = steps[at - 1];
        if (live >= 0) {
            const Py_ssize_t of_this = step.is_words
                                           ? advance_words(step.cursor, step.place, length)
                                           : advance(step.cursor, step.place, scanned + length);
            live = of_this < 0 ? -1 : of_this > live ? of_this : live;
        }
        Py_DECREF(step.cursor);
        Py_DECREF(step.place);
    }
    return PyErr_Occurred() ? -2 : live;
}

/* `scan_quickly` for these cursors. */
static PyObject *scan(PyObject *scanner, PyObject *words, PyObject *patterns, PyObject *text, int unusual)
{
    Step few[FEW];
    const Py_ssize_t count = PyList_Size(words) + PyList_Size(patterns), scanned = get_number(scanner, &names.scanned);
    if (PyErr_Occurred())
        return NULL;
    Step *steps = count <= FEW ? few : PyMem_Malloc((size_t)count * sizeof(Step));
    if (steps == NULL)
        return PyErr_NoMemory();
    const Py_ssize_t live = take(steps, words, patterns, text, scanned);
    if (steps != few)
        PyMem_Free(steps);
    if (live < 0)
        return live < -1 ? NULL : Py_NewRef(Py_None);
    if (set_number(scanner, &names.scanned, scanned + PyUnicode_GetLength(text)) < 0)
        return NULL;
    PyObject *dropped = unusual ? PyObject_CallMethodObjArgs(scanner, names.drop_carried, NULL) : Py_NewRef(Py_None);
    if (dropped == NULL)
        return NULL;
    Py_DECREF(dropped);
    return PyLong_FromSsize_t(live);
}

PyDoc_STRVAR(scan_doc, "See scanner.py.");

static PyObject *scan_quickly(PyObject *scanner, PyObject *text)
{
    if (!PyUnicode_Check(text))
        return wrong("a scanner takes text");
    const int unusual = is_true(scanner, &names.unusual);
    if (unusual < 0)
        return NULL;
    if (unusual) {
        PyObject *readings = get(scanner, &names.readings);
        Py_XDECREF(readings);
        if (readings != Py_None)
            return readings == NULL ? NULL : Py_NewRef(Py_None);
    }
    PyObject *words = get(scanner, &names.literals), *patterns = words == NULL ? NULL : get(scanner, &names.patterns);
    PyObject *found = NULL;
    if (patterns != NULL)
        found = PyList_Check(words) && PyList_Check(patterns) ? scan(scanner, words, patterns, text, unusual)
                                                              : wrong("cursors are lists");
    Py_XDECREF(words);
    Py_XDECREF(patterns);
    return found;
}

/* -- whole texts --------------------------------------------------------------------------------------------------- */

static PyObject *pass_words(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyUnicode_Check(arguments[2]))
        return wrong("a machine, a state and a text");
    return over_words(arguments[0], arguments[1], arguments[2]);
}

static PyObject *over_patterns(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyUnicode_Check(arguments[1]))
        return wrong("a state and a text");
    const Py_ssize_t length = PyUnicode_GetLength(arguments[1]);
    PyObject *state = Py_NewRef(arguments[0]);
    for (Py_ssize_t at = 0; state != NULL && at < length; at++) {
        PyObject *target = after(state, PyUnicode_ReadChar(arguments[1], at));
        Py_DECREF(state);
        state = target;
        if (state == names.undecided) {
            Py_DECREF(state);
            return Py_NewRef(Py_None);
        }
    }
    return state;
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

static PyMethodDef scan_method = {"scan_quickly", scan_quickly, METH_O, scan_doc};

/* `scan_quickly` as a method of a class, and what has to be known for it: the state that decides nothing, the class of
   machines of tries, and how to walk those, or None. */
static PyObject *method_of(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 4 || !PyType_Check(arguments[0]))
        return wrong("a method belongs to a class");
    const Walk *entry = arguments[3] == Py_None ? NULL : PyCapsule_GetPointer(arguments[3], WALK_NAME);
    if (entry == NULL && PyErr_Occurred())
        return NULL;
    walk_of_tries = entry;
    PyObject *old_state = names.undecided, *old_type = names.walking;
    names.undecided = Py_NewRef(arguments[1]);
    names.walking = Py_NewRef(arguments[2]);
    Py_XDECREF(old_state);
    Py_XDECREF(old_type);
    return PyDescr_NewMethod((PyTypeObject *)arguments[0], &scan_method);
}

static PyMethodDef functions[] = {
    {"method_of", (PyCFunction)(void (*)(void))method_of, METH_FASTCALL, "`scan_quickly` as a method of a class."},
    {"over_patterns", (PyCFunction)(void (*)(void))over_patterns, METH_FASTCALL, scan_doc},
    {"over_words", (PyCFunction)(void (*)(void))pass_words, METH_FASTCALL, scan_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_scanner", "gateway.censor.scanner in C.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__scanner(void)
{
    const struct {
        Attribute *attribute;
        const char *name;
    } opened[] = {
        {&names.literals, "literals"}, {&names.patterns, "patterns"}, {&names.readings, "readings"},
        {&names.scanned, "scanned"}, {&names.unusual, "_unusual"},
        {&names.folded, "folded"}, {&names.jumps, "jumps"}, {&names.machine, "machine"}, {&names.state, "state"},
        {&names.exact, "_exact"}, {&names.max_hold, "_max_hold"},
        {&names.pattern_machine, "_machine"}, {&names.quick, "_quick"},
        {&names.arrival, "arrival"}, {&names.leaps, "leaps"}, {&names.live, "live"}, {&names.moves, "moves"},
        {&names.pattern_live, "live"},
    };
    for (size_t at = 0; at < sizeof(opened) / sizeof(opened[0]); at++)
        if (open_attribute(opened[at].attribute, opened[at].name) < 0)
            return NULL;
    names.drop_carried = PyUnicode_InternFromString("_drop_carried");
    names.leap = PyUnicode_InternFromString("leap");
    names.walk = PyUnicode_InternFromString("walk");
    names.empty = PyUnicode_InternFromString("");
    const int done = names.drop_carried != NULL && names.leap != NULL && names.walk != NULL && names.empty != NULL;
    return done ? PyModule_Create(&module_definition) : NULL;
}
