/* `BytesPath` of gateway/guard/bytes_path.py, to the letter: that one says what is right, and the same tests run for
   both. An event for which this way is not taken leaves no trace. `ReadPath` is HTTP's framing around it, from a read of
   the upstream's socket to the write to the client's; the way through gateway/http1 and `HotPath` says what is right.

   What changes with each event is read into the path once, and written back by `write_back`, which is called before
   anything else looks at it: reading and writing attributes is a large part of what an event costs.

   Only the stable ABI is used. Every object that is read is checked for its type where Python code could have put
   another there; every index is checked against the length it belongs to. */

#include "../attributes.h"
#include <string.h>

static struct {
    Attribute ahead, base, disconnected, folded, held, held_since, left, live, machine, now, number, scanned, state, total,
        usage, write_paused, written;
    PyObject *scan_quickly;
} names;

#include "_event_template.h"
#include "_histogram.h"

#define MAX_NUMBER 20 /* digits of the number of an event that is sent */
static const char LINE[] = "data: ", EVENT_END[] = "\n\n";
#define LINE_SIZE 6
#define EVENT_END_SIZE 2

/* What a path refers to. */
enum {
    AROUND, KINDS, SHOWN, ORDER, BARE, BARE_ORDER, BEFORE, /* of the template; BEFORE is its `line` */
    GUARD, TEXT, COUNTS, SCANNER, CURSOR, RELEASER, /* parameters of its constructor, in their order, behind the template;
                                                       CURSOR is None where the scanner has several */
    OVER_WORDS,                                     /* of gateway.censor.scanner */
    DECODE, ENCODE, ESCAPE,                         /* what reads and writes a content that is not plain */
    HELD, HOLD,                                     /* histograms */
    TALLY, KEEP, PLACE,                             /* of the record; NULL where there is none */
    SENT, REST,                                     /* not parameters */
    REFERENCES
};

/* What changes with each event; references that are NULL while it has not been read. */
typedef struct {
    PyObject *state;           /* of the cursor, if that is the only one */
    PyObject *held;            /* of the releaser */
    PyObject *since;           /* `held_since` of the text */
    PyObject *now;             /* of the last read */
    Py_ssize_t stepped, cut;   /* characters that the cursor stepped over, and that came out, since it was read */
    Py_ssize_t left, number;   /* of the tally */
} State;

typedef struct {
    PyObject_HEAD
    PyObject *at[REFERENCES];
    Form event, shown, bare;
    Part before;
    Histogram held, hold;
    State state;
    Py_ssize_t piece, limit, content, prompt, answer; /* the last three are places; prompt is -1 where nothing is counted */
    int empties, numbered, ready;
} Path;

#define CALL(function, argument) PyObject_CallFunctionObjArgs(self->at[function], argument, NULL)

/* -- what changes with each event ---------------------------------------------------------------------------------- */

static void forget(State *state)
{
    Py_CLEAR(state->state);
    Py_CLEAR(state->held);
    Py_CLEAR(state->since);
    Py_CLEAR(state->now);
}

/* Reads it, if that has not been done, for a read at `now`; -1 with an exception. */
static int read_state(Path *self, PyObject *now)
{
    State *state = &self->state;
    if (state->now == NULL) {
        const int alone = self->at[CURSOR] != Py_None;
        *state = (State){0};
        if ((alone && (state->state = get(self->at[CURSOR], &names.state)) == NULL) ||
            (state->held = get(self->at[RELEASER], &names.held)) == NULL || PyUnicode_GetLength(state->held) < 0 ||
            (state->since = get(self->at[TEXT], &names.held_since)) == NULL ||
            read_total(&self->held) < 0 || read_total(&self->hold) < 0)
            goto failed;
        if (self->at[TALLY] != NULL) {
            state->left = get_number(self->at[TALLY], &names.left);
            state->number = PyErr_Occurred() ? -1 : get_number(self->at[TALLY], &names.number);
            if (PyErr_Occurred())
                goto failed;
        }
    }
    REPLACE(state->now, Py_NewRef(now));
    return 0;
failed:
    forget(state);
    return -1;
}

/* Writes it where it was read, if it was; -1 with an exception. */
static int write_state(Path *self)
{
    State state = self->state; /* whose references are taken */
    int done = 0;
    if (state.now == NULL)
        return 0;
    self->state = (State){0};
    if (state.state != NULL && (set(self->at[CURSOR], &names.state, state.state) < 0 ||
                                add_to(self->at[CURSOR], &names.folded, state.stepped) < 0 ||
                                add_to(self->at[SCANNER], &names.scanned, state.stepped) < 0))
        done = -1;
    else if (set(self->at[RELEASER], &names.held, state.held) < 0 ||
             add_to(self->at[RELEASER], &names.base, state.cut) < 0 ||
             add_to(self->at[TEXT], &names.written, state.cut) < 0 ||
             set(self->at[TEXT], &names.held_since, state.since) < 0 || set(self->at[COUNTS], &names.now, state.now) < 0 ||
             write_histogram(&self->held) < 0 || write_histogram(&self->hold) < 0)
        done = -1;
    else if (self->at[TALLY] != NULL && (set_number(self->at[TALLY], &names.left, state.left) < 0 ||
                                         set_number(self->at[TALLY], &names.number, state.number) < 0))
        done = -1;
    else if (self->at[PLACE] != NULL && self->at[PLACE] != Py_None)
        done = set(self->at[PLACE], &names.ahead, state.held);
    forget(&state);
    return done;
}

/* -- one event ----------------------------------------------------------------------------------------------------- */

/* A figure, a new reference. */
static PyObject *number_of(Part figure)
{
    long long number = 0;
    for (Py_ssize_t at = 0; at < figure.size; at++)
        number = number * 10 + figure.text[at] - '0';
    return PyLong_FromLongLong(number);
}

/* Counts what an event says of tokens; -1 with an exception. */
static int note_usage(const Path *self, const Part *found)
{
    PyObject *prompt = number_of(found[self->prompt]), *answer = number_of(found[self->answer]);
    PyObject *usage = prompt == NULL || answer == NULL ? NULL : PyTuple_Pack(2, prompt, answer);
    const int done = usage == NULL ? -1 : set(self->at[GUARD], &names.usage, usage);
    Py_XDECREF(prompt);
    Py_XDECREF(answer);
    Py_XDECREF(usage);
    return done;
}

/* The content, a new reference; NULL with an exception, or without one if it is none. */
static PyObject *decoded(const Path *self, Part content, int plain)
{
    if (plain)
        return PyUnicode_FromStringAndSize(content.text, content.size);
    PyObject *quoted = PyBytes_FromStringAndSize(NULL, content.size + 2);
    if (quoted == NULL)
        return NULL;
    char *to = PyBytes_AsString(quoted);
    to[0] = to[content.size + 1] = '"';
    memcpy(to + 1, content.text, (size_t)content.size);
    PyObject *given = CALL(DECODE, quoted);
    Py_DECREF(quoted);
    if (given == NULL && PyErr_ExceptionMatches(PyExc_ValueError))
        PyErr_Clear();
    if (given != NULL && !PyUnicode_Check(given)) {
        Py_DECREF(given);
        PyErr_SetString(PyExc_TypeError, "decode returned no text");
        return NULL;
    }
    return given;
}

/* The state behind `given`, a new reference; None where it is remarkable; NULL with an exception. */
static PyObject *stepped(const Path *self, PyObject *given)
{
    PyObject *machine = get(self->at[CURSOR], &names.machine);
    PyObject *state = machine == NULL ? NULL : PyObject_CallFunctionObjArgs(self->at[OVER_WORDS], machine,
                                                                            self->state.state, given, NULL);
    Py_XDECREF(machine);
    return state;
}

/* Steps over `given`; the length of the live suffix, -1 where something is remarkable and nothing has happened, -2 with
   an exception. */
static Py_ssize_t scan(Path *self, PyObject *given, Py_ssize_t length)
{
    PyObject *found;
    if (self->state.state == NULL) {
        found = PyObject_CallMethodObjArgs(self->at[SCANNER], names.scan_quickly, given, NULL);
    } else {
        PyObject *state = stepped(self, given);
        if (state == NULL)
            return -2;
        if (state == Py_None) {
            Py_DECREF(state);
            return -1;
        }
        found = get(state, &names.live);
        if (found != NULL && PyLong_AsSsize_t(found) < 0) { /* not computed yet */
            Py_CLEAR(found);
            PyObject *machine = PyErr_Occurred() ? NULL : get(self->at[CURSOR], &names.machine);
            found = machine == NULL ? NULL : PyObject_CallMethodObjArgs(machine, names.live.name, state, NULL);
            Py_XDECREF(machine);
        }
        if (found != NULL) {
            REPLACE(self->state.state, Py_NewRef(state));
            self->state.stepped += length;
        }
        Py_DECREF(state);
    }
    if (found == NULL)
        return -2;
    Py_ssize_t live = found == Py_None ? -1 : PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -2 : live;
}

/* May as many characters be kept as come out at most, where any are? */
static int may_keep(const Path *self, Py_ssize_t length)
{
    return self->at[TALLY] == NULL || self->state.left >= PyUnicode_GetLength(self->state.held) + length;
}

/* What comes out once `given` has been scanned, a new reference, which is kept; what is held is counted as in
   ChannelText.note_held. NULL with an exception. */
static PyObject *released(Path *self, PyObject *given, Py_ssize_t live)
{
    State *state = &self->state;
    PyObject *held = PyUnicode_Concat(state->held, given), *shown;
    const Py_ssize_t length = held == NULL ? -1 : PyUnicode_GetLength(held);
    const Py_ssize_t cut = length > live ? length - live : 0, kept = length - cut;
    shown = length < 0 ? NULL : PyUnicode_Substring(held, 0, cut);
    if (shown != NULL && cut > 0)
        REPLACE(held, PyUnicode_Substring(held, cut, length));
    if (shown == NULL || held == NULL)
        goto failed;
    REPLACE(state->held, held);
    held = NULL;
    state->cut += cut;
    observe(&self->held, (double)kept);
    if (state->since != Py_None && (cut > 0 || kept == 0)) {
        const double waited = PyFloat_AsDouble(state->now) - PyFloat_AsDouble(state->since);
        if (PyErr_Occurred())
            goto failed;
        observe(&self->hold, waited);
        REPLACE(state->since, Py_NewRef(kept ? state->now : Py_None));
    } else if (kept && state->since == Py_None)
        REPLACE(state->since, Py_NewRef(state->now));
    if (self->at[TALLY] != NULL && cut > 0) {
        PyObject *done = CALL(KEEP, shown);
        if (done == NULL)
            goto failed;
        Py_DECREF(done);
        state->left -= cut;
    }
    return shown;
failed:
    Py_XDECREF(held);
    Py_XDECREF(shown);
    return NULL;
}

/* The number of the event that is sent, in `digits`; -1 with an exception. */
static int write_number(Path *self, Part *number, char *digits)
{
    char *at = digits + MAX_NUMBER;
    if (self->state.number < 0) {
        PyErr_SetString(PyExc_ValueError, "the number of an event is not known");
        return -1;
    }
    Py_ssize_t rest = self->state.number++;
    do
        *--at = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    *number = (Part){at, digits + MAX_NUMBER - at};
    return 0;
}

/* The event with this content, a new reference. */
static PyObject *shown_event(Path *self, PyObject *shown, Part *found)
{
    PyObject *encoded = NULL, *event;
    Part *content = &found[self->content];
    char digits[MAX_NUMBER];
    content->text = PyUnicode_AsUTF8AndSize(shown, &content->size);
    if (content->text == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeError)) /* half a surrogate pair, which JSON can write */
            return NULL;
        PyErr_Clear();
    }
    if (content->text == NULL || !is_plain(content->text, content->size)) {
        encoded = CALL(ENCODE, shown);
        if (encoded != NULL)
            REPLACE(encoded, CALL(ESCAPE, encoded));
        if (encoded == NULL)
            return NULL;
        if (!PyBytes_Check(encoded) || PyBytes_Size(encoded) < 2) {
            Py_DECREF(encoded);
            PyErr_SetString(PyExc_TypeError, "encode returned no string's bytes");
            return NULL;
        }
        *content = (Part){PyBytes_AsString(encoded) + 1, PyBytes_Size(encoded) - 2};
    }
    event = self->numbered && write_number(self, &found[self->event.count], digits) < 0 ? NULL : event_of(&self->shown, found);
    Py_XDECREF(encoded);
    return event;
}

/* Takes one event. Where it ends; 0 if it was not taken, -1 with an exception. */
static Py_ssize_t relay_event(Path *self, const char *data, Py_ssize_t at, Py_ssize_t size, PyObject **sent)
{
    Part found[MAX_PLACES + 1]; /* the last is the number of the event that is sent */
    int plain = 1;
    Py_ssize_t begin = at;
    if (size - at >= self->before.size && memcmp(data + at, self->before.text, (size_t)self->before.size) == 0)
        begin += self->before.size;
    if (size - begin < LINE_SIZE || memcmp(data + begin, LINE, LINE_SIZE) != 0)
        return 0;
    Py_ssize_t end = find_places(&self->event, data, begin + LINE_SIZE, size, found, &plain);
    if (end == 0 || end - at > self->limit || size - end < EVENT_END_SIZE ||
        memcmp(data + end, EVENT_END, EVENT_END_SIZE) != 0)
        return 0;
    PyObject *given = decoded(self, found[self->content], plain);
    if (given == NULL)
        return PyErr_Occurred() ? -1 : 0;
    const Py_ssize_t length = PyUnicode_GetLength(given);
    /* Where a backtick stands JSON may begin, which is a text of its own. */
    const Py_ssize_t fence = PyUnicode_FindChar(given, '`', 0, length, 1);
    const int may = fence == -2 ? -1 : length > self->piece || fence >= 0 ? 0 : may_keep(self, length);
    Py_ssize_t live = may > 0 ? scan(self, given, length) : may - 1;
    PyObject *shown = live < 0 ? NULL : released(self, given, live), *event = NULL;
    Py_DECREF(given);
    if (shown == NULL)
        return live == -1 ? 0 : -1;
    end += EVENT_END_SIZE;
    if (self->prompt >= 0 && note_usage(self, found) < 0)
        end = -1;
    else if (PyUnicode_GetLength(shown) > 0 || (length == 0 && self->empties))
        end = (event = shown_event(self, shown, found)) == NULL ? -1 : end;
    else if (self->bare.count >= 0)
        end = (event = event_of(&self->bare, found)) == NULL ? -1 : end;
    Py_DECREF(shown);
    if (*sent == NULL)
        *sent = event;
    else if (event != NULL) {
        PyBytes_ConcatAndDel(sent, event);
        end = *sent == NULL ? -1 : end;
    }
    return end;
}

/* Takes events until one is not taken. Where the next one begins; -1 with an exception. */
static Py_ssize_t relay_events(Path *self, const char *data, Py_ssize_t at, Py_ssize_t size, PyObject **sent)
{
    while (at < size) {
        const Py_ssize_t end = relay_event(self, data, at, size, sent);
        if (end <= 0)
            return end < 0 ? -1 : at;
        at = end;
    }
    return at;
}

PyDoc_STRVAR(feed_doc, "What to send for a read; None where not all of it was taken. `now` in seconds.");

static PyObject *feed(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    Path *self = (Path *)object;
    if (!self->ready || count != 2 || !PyBytes_Check(arguments[0]) || !PyFloat_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "feed takes bytes and a float");
        return NULL;
    }
    PyObject *now = arguments[1], *sent = NULL;
    const char *data = PyBytes_AsString(arguments[0]);
    const Py_ssize_t size = PyBytes_Size(arguments[0]);
    if (read_state(self, now) < 0)
        return NULL;
    const Py_ssize_t at = relay_events(self, data, 0, size, &sent);
    if (at < 0) {
        Py_XDECREF(sent);
        return NULL;
    }
    if (sent == NULL && (sent = PyBytes_FromStringAndSize(NULL, 0)) == NULL)
        return NULL;
    if (at == size)
        return sent;
    PyObject *rest = write_state(self) < 0 ? NULL : PyBytes_FromStringAndSize(data + at, size - at);
    if (rest == NULL) {
        Py_DECREF(sent);
        return NULL;
    }
    REPLACE(self->at[SENT], sent);
    REPLACE(self->at[REST], rest);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(write_back_doc, "Write down what has changed: to be called before anything else looks at it.");

static PyObject *write_back(PyObject *object, PyObject *Py_UNUSED(none))
{
    if (write_state((Path *)object) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* -- the type ------------------------------------------------------------------------------------------------------ */

/* What is counted: None, or a pair of places that are figures. -1 with an exception. */
static int open_counted(Path *self, PyObject *counted)
{
    self->prompt = -1;
    if (counted == Py_None)
        return 0;
    Py_ssize_t prompt, answer;
    if (!PyTuple_Check(counted)) {
        PyErr_SetString(PyExc_TypeError, "what is counted is no pair");
        return -1;
    }
    if (!PyArg_ParseTuple(counted, "nn", &prompt, &answer))
        return -1;
    const Form *event = &self->event;
    if (prompt < 0 || prompt >= event->count || answer < 0 || answer >= event->count ||
        event->places[prompt] != FIGURE || event->places[answer] != FIGURE) {
        PyErr_SetString(PyExc_ValueError, "what is counted is no figure");
        return -1;
    }
    self->prompt = prompt;
    self->answer = answer;
    return 0;
}

/* -1 with an exception. */
static int open_template(Path *self, PyObject *template)
{
    static const char *const attributes[] = {"around", "kinds", "shown", "order", "bare", "bare_order", "line"};
    for (int name = AROUND; name <= BEFORE; name++)
        if ((self->at[name] = PyObject_GetAttrString(template, attributes[name])) == NULL)
            return -1;
    if (open_form(&self->event, self->at[AROUND], self->at[KINDS], 0) < 0)
        return -1;
    if (open_form(&self->shown, self->at[SHOWN], self->at[ORDER], self->event.count + 1) < 0 ||
        open_form(&self->bare, self->at[BARE], self->at[BARE_ORDER], self->event.count) < 0 ||
        PyBytes_AsStringAndSize(self->at[BEFORE], (char **)&self->before.text, &self->before.size) < 0)
        return -1;
    for (int place = 0; place < self->shown.count; place++)
        self->numbered |= self->shown.places[place] == self->event.count;
    while (self->content < self->event.count && self->event.places[self->content] != CONTENT)
        self->content++;
    if (self->content >= self->event.count || self->shown.count < 0) {
        PyErr_SetString(PyExc_ValueError, "a template has no content");
        return -1;
    }
    PyObject *counted = PyObject_GetAttrString(template, "counted"), *empties = NULL;
    int opened = counted == NULL ? -1 : open_counted(self, counted);
    if (opened == 0 && (empties = PyObject_GetAttrString(template, "empties")) != NULL)
        self->empties = PyObject_IsTrue(empties);
    opened = empties == NULL || self->empties < 0 ? -1 : opened;
    Py_XDECREF(counted);
    Py_XDECREF(empties);
    return opened;
}

/* None, or a gateway.guard.bytes_path.Record. -1 with an exception. */
static int open_record(Path *self, PyObject *record)
{
    if (record != Py_None) {
        PyObject *given[3];
        if (!PyTuple_Check(record)) {
            PyErr_SetString(PyExc_TypeError, "a record is a tuple");
            return -1;
        }
        if (!PyArg_ParseTuple(record, "OOO", &given[0], &given[1], &given[2]))
            return -1;
        for (int name = TALLY; name <= PLACE; name++)
            self->at[name] = Py_NewRef(given[name - TALLY]);
    } else if (self->numbered) {
        PyErr_SetString(PyExc_ValueError, "no record has the number of an event");
        return -1;
    }
    return 0;
}

static int path_init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    Path *self = (Path *)object;
    PyObject *given[TALLY], *template, *record;
    if (self->at[AROUND] != NULL || (keywords != NULL && PyDict_Size(keywords) > 0)) {
        PyErr_SetString(PyExc_TypeError, "a path is made once, and without keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "OOOOOOOOOOOOOOnn", &template, &given[GUARD], &given[TEXT], &given[COUNTS],
                          &given[SCANNER], &given[CURSOR], &given[RELEASER], &given[OVER_WORDS], &given[DECODE],
                          &given[ENCODE], &given[ESCAPE], &given[HELD], &given[HOLD], &record, &self->piece,
                          &self->limit))
        return -1;
    if (open_template(self, template) < 0 || open_record(self, record) < 0)
        return -1;
    for (int name = GUARD; name < TALLY; name++)
        self->at[name] = Py_NewRef(given[name]);
    self->at[SENT] = PyBytes_FromStringAndSize(NULL, 0);
    self->at[REST] = PyBytes_FromStringAndSize(NULL, 0);
    if (self->at[SENT] == NULL || self->at[REST] == NULL)
        return -1;
    if (open_histogram(&self->held, given[HELD]) < 0 || open_histogram(&self->hold, given[HOLD]) < 0)
        return -1;
    self->ready = 1;
    return 0;
}

static int path_traverse(PyObject *object, visitproc visit, void *arg)
{
    const Path *self = (Path *)object;
    Py_VISIT(Py_TYPE(object));
    for (int name = 0; name < REFERENCES; name++)
        Py_VISIT(self->at[name]);
    Py_VISIT(self->held.counts);
    Py_VISIT(self->hold.counts);
    Py_VISIT(self->state.state);
    Py_VISIT(self->state.held);
    Py_VISIT(self->state.since);
    Py_VISIT(self->state.now);
    return 0;
}

static int path_clear(PyObject *object)
{
    Path *self = (Path *)object;
    self->ready = 0;
    for (int name = 0; name < REFERENCES; name++)
        Py_CLEAR(self->at[name]);
    Py_CLEAR(self->held.counts);
    Py_CLEAR(self->hold.counts);
    forget(&self->state);
    return 0;
}

static void dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    ((inquiry)PyType_GetSlot(type, Py_tp_clear))(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef path_methods[] = {
    {"feed", (PyCFunction)(void (*)(void))feed, METH_FASTCALL, feed_doc},
    {"write_back", write_back, METH_NOARGS, write_back_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef path_members[] = {
    {"sent", T_OBJECT, offsetof(Path, at) + SENT * sizeof(PyObject *), READONLY, "For the events that were taken."},
    {"rest", T_OBJECT, offsetof(Path, at) + REST * sizeof(PyObject *), READONLY, "The bytes that were not taken."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot path_slots[] = {
    {Py_tp_init, path_init},         {Py_tp_new, PyType_GenericNew},  {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, path_traverse}, {Py_tp_clear, path_clear},       {Py_tp_methods, path_methods},
    {Py_tp_members, path_members},   {Py_tp_doc, "See bytes_path.py."}, {0, NULL},
};

static PyType_Spec path_spec = {
    "gateway.guard._bytes_path.BytesPath", sizeof(Path), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, path_slots,
};

#include "_read_path.h"

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_bytes_path", "gateway.guard.bytes_path in C.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__bytes_path(void)
{
    const struct {
        Attribute *attribute;
        const char *name;
    } opened[] = {
        {&names.ahead, "ahead"}, {&names.base, "base"}, {&names.disconnected, "disconnected"},
        {&names.folded, "folded"}, {&names.held, "held"}, {&names.held_since, "held_since"}, {&names.left, "left"},
        {&names.live, "live"}, {&names.machine, "machine"}, {&names.now, "now"}, {&names.number, "number"},
        {&names.scanned, "scanned"}, {&names.state, "state"}, {&names.total, "total"}, {&names.usage, "usage"},
        {&names.write_paused, "write_paused"}, {&names.written, "written"},
    };
    for (size_t at = 0; at < sizeof(opened) / sizeof(opened[0]); at++)
        if (open_attribute(opened[at].attribute, opened[at].name) < 0)
            return NULL;
    if ((names.scan_quickly = PyUnicode_InternFromString("scan_quickly")) == NULL)
        return NULL;
    PyObject *module = PyModule_Create(&module_definition), *read_type = NULL;
    path_type = module == NULL ? NULL : (PyTypeObject *)PyType_FromSpec(&path_spec);
    if (path_type == NULL || (read_type = PyType_FromSpec(&read_spec)) == NULL ||
        PyModule_AddType(module, path_type) < 0 || PyModule_AddType(module, (PyTypeObject *)read_type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(read_type);
    return module;
}
