/* `BytesPath` of gateway/guard/bytes_path.py, to the letter: that one says what is right, and the same tests run for
   both. An event for which this way is not taken leaves no trace. `ReadPath` is HTTP's framing around it, from a read of
   the upstream's socket to the write to the client's; the way through gateway/http1 and `HotPath` says what is right.

   Only the stable ABI is used. Every object that is read is checked for its type where Python code could have put
   another there; every index is checked against the length it belongs to. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <structmember.h>
#include <string.h>

#define MAX_BOUNDS 16 /* of a histogram */
#define MAX_PLACES 8  /* of an event that may change */
#define MAX_FIGURE 11 /* digits */
#define MAX_NUMBER 20 /* digits of the number of an event that is sent */

/* A gateway.guard.channels.Histogram. */
typedef struct {
    PyObject *self, *counts; /* borrowed from the path; a reference */
    Py_ssize_t size;
    double bounds[MAX_BOUNDS];
} Histogram;

typedef struct {
    const char *text; /* borrowed */
    Py_ssize_t size;
} Part;

/* Parts with places between them, as a gateway.wire.event_template.EventTemplate has them. */
typedef struct {
    Part parts[MAX_PLACES + 1];
    unsigned char places[MAX_PLACES];
    int count; /* of places; -1: there is no such form */
} Form;

/* What a path refers to. */
enum {
    AROUND, KINDS, SHOWN, ORDER, BARE, BARE_ORDER, BEFORE, /* of the template; BEFORE is its `line` */
    GUARD, TEXT, COUNTS, SCANNER, CURSOR, RELEASER, /* parameters of its constructor, in their order, behind the template;
                                                       CURSOR is None where the scanner has several */
    DECODE, ENCODE, ESCAPE,                         /* what reads and writes a content that is not plain */
    HELD, HOLD,                                     /* histograms */
    TALLY, KEEP, PLACE,                             /* of the record; NULL where there is none */
    SENT, REST,                                     /* not parameters */
    REFERENCES
};

enum { CONTENT = 'c', PADDING = 'p', FIGURE = 'f' }; /* kinds of places */
static const char LINE[] = "data: ", EVENT_END[] = "\n\n";
#define LINE_SIZE 6
#define EVENT_END_SIZE 2

typedef struct {
    PyObject_HEAD
    PyObject *at[REFERENCES];
    Form event, shown, bare;
    Part before;
    Histogram held, hold;
    Py_ssize_t piece, limit, content, prompt, answer; /* the last three are places; prompt is -1 where nothing is counted */
    int empties, numbered, ready;
} Path;

#define CALL(function, argument) PyObject_CallFunctionObjArgs(self->at[function], argument, NULL)
#define REPLACE(variable, value)          \
    do {                                  \
        PyObject *old_value = (variable); \
        (variable) = (value);             \
        Py_XDECREF(old_value);            \
    } while (0)

/* The name of an attribute, and its slot in the type that last had it; NULL where that has none. */
typedef struct {
    PyObject *name, *slot;
    PyTypeObject *type;
} Attribute;

static struct {
    Attribute ahead, arrival, base, disconnected, folded, held, held_since, left, live, machine, now, number, scanned,
        state, total, usage, write_paused, written;
    PyObject *scan_quickly, *walk;
} names;
static descrgetfunc get_slot;
static descrsetfunc set_slot;

/* -- attributes ---------------------------------------------------------------------------------------------------- */

/* Has the type of an object a slot for it? To find it again each time is most of what reading one costs. */
static int has_slot(Attribute *attribute, PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (type != attribute->type) {
        PyObject *slot = PyObject_GetAttr((PyObject *)type, attribute->name);
        if (slot == NULL)
            PyErr_Clear();
        else if (!Py_IS_TYPE(slot, &PyMemberDescr_Type))
            Py_CLEAR(slot);
        REPLACE(attribute->slot, slot);
        PyTypeObject *old_type = attribute->type;
        attribute->type = (PyTypeObject *)Py_NewRef((PyObject *)type);
        Py_XDECREF((PyObject *)old_type);
    }
    return attribute->slot != NULL;
}

static PyObject *get(PyObject *object, Attribute *attribute)
{
    if (has_slot(attribute, object))
        return get_slot(attribute->slot, object, (PyObject *)Py_TYPE(object));
    return PyObject_GetAttr(object, attribute->name);
}

static int set(PyObject *object, Attribute *attribute, PyObject *value)
{
    if (has_slot(attribute, object))
        return set_slot(attribute->slot, object, value);
    return PyObject_SetAttr(object, attribute->name, value);
}

/* A number; -1 also with an exception. */
static Py_ssize_t get_size(PyObject *object, Attribute *attribute)
{
    PyObject *value = get(object, attribute);
    const Py_ssize_t size = value == NULL ? -1 : PyLong_AsSsize_t(value);
    Py_XDECREF(value);
    return size;
}

/* -1 with an exception. */
static int set_size(PyObject *object, Attribute *attribute, Py_ssize_t size)
{
    PyObject *value = PyLong_FromSsize_t(size);
    const int done = value == NULL ? -1 : set(object, attribute, value);
    Py_XDECREF(value);
    return done;
}

/* -1 with an exception. */
static int add_to(PyObject *object, Attribute *attribute, Py_ssize_t amount)
{
    const Py_ssize_t before = get_size(object, attribute);
    return before == -1 && PyErr_Occurred() ? -1 : set_size(object, attribute, before + amount);
}

static int observe(const Histogram *histogram, double value)
{
    Py_ssize_t at = 0;
    while (at < histogram->size && histogram->bounds[at] < value)
        at++;
    PyObject *count = PyList_GetItem(histogram->counts, at); /* borrowed; checks the index */
    if (count == NULL)
        return -1;
    Py_ssize_t before = PyLong_AsSsize_t(count);
    if (before == -1 && PyErr_Occurred())
        return -1;
    count = PyLong_FromSsize_t(before + 1);
    if (count == NULL || PyList_SetItem(histogram->counts, at, count) < 0)
        return -1;
    if (value == 0.0)
        return 0;
    PyObject *total = get(histogram->self, &names.total);
    if (total == NULL)
        return -1;
    double sum = PyFloat_AsDouble(total) + value;
    Py_DECREF(total);
    if (PyErr_Occurred() || (total = PyFloat_FromDouble(sum)) == NULL)
        return -1;
    int done = set(histogram->self, &names.total, total);
    Py_DECREF(total);
    return done;
}

/* -- one event ----------------------------------------------------------------------------------------------------- */

static int is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* Where an event of the template ends whose data begins at `at`, and what stands in its places; 0 if it is none. Is the
   content JSON's spelling of itself, in ASCII? */
static Py_ssize_t find_places(const Path *self, const char *data, Py_ssize_t at, Py_ssize_t size, Part *found, int *plain)
{
    for (int place = 0;; place++) {
        const Part part = self->event.parts[place];
        if (size - at < part.size || memcmp(data + at, part.text, (size_t)part.size) != 0)
            return 0;
        at += part.size;
        if (place == self->event.count)
            return at;
        const Py_ssize_t begin = at;
        switch (self->event.places[place]) {
        case CONTENT:
            for (; at < size && data[at] != '"'; at++) {
                const unsigned char byte = (unsigned char)data[at];
                if (byte < 0x20 || byte > 0x7e || byte == '\\') {
                    *plain = 0;
                    at += byte == '\\'; /* a quote behind it ends nothing */
                }
            }
            break;
        case PADDING:
            while (at < size && (is_digit(data[at]) || ((data[at] | 0x20) >= 'a' && (data[at] | 0x20) <= 'z')))
                at++;
            break;
        default:
            while (at < size && is_digit(data[at]) && at - begin < MAX_FIGURE)
                at++;
            if (at == begin || (data[begin] == '0' && at > begin + 1))
                return 0;
        }
        found[place] = (Part){data + begin, at - begin};
    }
}

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

static int is_plain(const char *text, Py_ssize_t size)
{
    for (Py_ssize_t at = 0; at < size; at++) {
        const unsigned char byte = (unsigned char)text[at];
        if (byte < 0x20 || byte > 0x7e || byte == '"' || byte == '\\')
            return 0;
    }
    return 1;
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
static PyObject *walked(const Path *self, PyObject *given, Py_ssize_t length)
{
    PyObject *state = get(self->at[CURSOR], &names.state);
    for (Py_ssize_t at = 0; state != NULL && at < length; at++) {
        if (!PyDict_Check(state)) {
            PyErr_SetString(PyExc_TypeError, "a state is no table");
            break;
        }
        const Py_UCS4 character = PyUnicode_ReadChar(given, at);
        PyObject *key = PyUnicode_FromOrdinal((int)character);
        if (key == NULL)
            break;
        PyObject *target = PyDict_GetItemWithError(state, key); /* borrowed */
        Py_DECREF(key);
        if (target == NULL) {
            Py_DECREF(state);
            if (PyErr_Occurred())
                return NULL;
            PyObject *machine = get(self->at[CURSOR], &names.machine);
            PyObject *from = machine == NULL ? NULL : get(self->at[CURSOR], &names.state);
            PyObject *found = from == NULL ? NULL : PyObject_CallMethodObjArgs(machine, names.walk, from, given, NULL);
            Py_XDECREF(machine);
            Py_XDECREF(from);
            return found;
        }
        Py_INCREF(target);
        Py_DECREF(state);
        state = target;
        PyObject *arrival = get(state, &names.arrival);
        if (arrival == NULL)
            break;
        Py_DECREF(arrival);
        if (arrival != Py_None) {
            Py_DECREF(state);
            return Py_NewRef(Py_None);
        }
    }
    if (PyErr_Occurred())
        Py_CLEAR(state);
    return state;
}

/* Steps over `given`; the length of the live suffix, -1 where something is remarkable and nothing has happened, -2 with
   an exception. */
static Py_ssize_t scan(const Path *self, PyObject *given, Py_ssize_t length)
{
    PyObject *found;
    if (self->at[CURSOR] == Py_None) {
        found = PyObject_CallMethodObjArgs(self->at[SCANNER], names.scan_quickly, given, NULL);
    } else {
        PyObject *state = walked(self, given, length);
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
        if (found != NULL && (set(self->at[CURSOR], &names.state, state) < 0 ||
                              add_to(self->at[CURSOR], &names.folded, length) < 0 ||
                              add_to(self->at[SCANNER], &names.scanned, length) < 0))
            Py_CLEAR(found);
        Py_DECREF(state);
    }
    if (found == NULL)
        return -2;
    Py_ssize_t live = found == Py_None ? -1 : PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -2 : live;
}

/* May as many characters be kept as come out at most, where any are? -1 with an exception. */
static int may_keep(const Path *self, Py_ssize_t length)
{
    if (self->at[TALLY] == NULL)
        return 1;
    PyObject *held = get(self->at[RELEASER], &names.held);
    const Py_ssize_t before = held == NULL ? -1 : PyUnicode_GetLength(held);
    Py_XDECREF(held);
    const Py_ssize_t left = before < 0 ? -1 : get_size(self->at[TALLY], &names.left);
    return PyErr_Occurred() ? -1 : left >= before + length;
}

/* Keeps what comes out of a text, and what is held of it; -1 with an exception. */
static int keep(const Path *self, PyObject *shown, PyObject *held)
{
    if (self->at[PLACE] != NULL && self->at[PLACE] != Py_None && set(self->at[PLACE], &names.ahead, held) < 0)
        return -1;
    if (self->at[TALLY] == NULL || PyUnicode_GetLength(shown) == 0)
        return 0;
    PyObject *kept = CALL(KEEP, shown);
    Py_XDECREF(kept);
    return kept == NULL ? -1 : add_to(self->at[TALLY], &names.left, -PyUnicode_GetLength(shown));
}

/* What comes out once `given` has been scanned, a new reference; what is held is counted as in
   ChannelText.note_held. */
static PyObject *released(const Path *self, PyObject *given, Py_ssize_t live, PyObject *now)
{
    PyObject *held = get(self->at[RELEASER], &names.held), *shown = NULL, *since = NULL;
    if (held == NULL)
        return NULL;
    REPLACE(held, PyUnicode_Concat(held, given));
    const Py_ssize_t length = held == NULL ? -1 : PyUnicode_GetLength(held);
    if (length < 0)
        goto failed;
    const Py_ssize_t cut = length > live ? length - live : 0;
    shown = PyUnicode_Substring(held, 0, cut);
    if (shown == NULL)
        goto failed;
    if (cut > 0) {
        REPLACE(held, PyUnicode_Substring(held, cut, length));
        if (held == NULL || add_to(self->at[RELEASER], &names.base, cut) < 0 || add_to(self->at[TEXT], &names.written, cut) < 0)
            goto failed;
    }
    const Py_ssize_t kept = length - cut;
    if (set(self->at[RELEASER], &names.held, held) < 0 || observe(&self->held, (double)kept) < 0)
        goto failed;
    since = get(self->at[TEXT], &names.held_since);
    if (since == NULL)
        goto failed;
    if (since != Py_None && (cut > 0 || kept == 0)) {
        const double waited = PyFloat_AsDouble(now) - PyFloat_AsDouble(since);
        if (PyErr_Occurred() || observe(&self->hold, waited) < 0 ||
            set(self->at[TEXT], &names.held_since, kept ? now : Py_None) < 0)
            goto failed;
    } else if (kept && since == Py_None && set(self->at[TEXT], &names.held_since, now) < 0)
        goto failed;
    if (keep(self, shown, held) < 0)
        goto failed;
    Py_DECREF(since);
    Py_DECREF(held);
    return shown;
failed:
    Py_XDECREF(since);
    Py_XDECREF(held);
    Py_XDECREF(shown);
    return NULL;
}

/* The event with this in its places, a new reference. */
static PyObject *event_of(const Form *form, const Part *found)
{
    Py_ssize_t size = 0;
    for (int place = 0; place <= form->count; place++)
        size += form->parts[place].size + (place < form->count ? found[form->places[place]].size : 0);
    PyObject *event = PyBytes_FromStringAndSize(NULL, size);
    if (event == NULL)
        return NULL;
    char *to = PyBytes_AsString(event);
    for (int place = 0; place <= form->count; place++) {
        const Part part = form->parts[place];
        memcpy(to, part.text, (size_t)part.size);
        to += part.size;
        if (place < form->count) {
            const Part given = found[form->places[place]];
            memcpy(to, given.text, (size_t)given.size);
            to += given.size;
        }
    }
    return event;
}

/* The number of the event that is sent, in `digits`; -1 with an exception. */
static int write_number(const Path *self, Part *number, char *digits)
{
    const Py_ssize_t given = get_size(self->at[TALLY], &names.number);
    char *at = digits + MAX_NUMBER;
    if (given < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "the number of an event is not known");
        return -1;
    }
    Py_ssize_t rest = given;
    do
        *--at = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    *number = (Part){at, digits + MAX_NUMBER - at};
    return set_size(self->at[TALLY], &names.number, given + 1);
}

/* The event with this content, a new reference. */
static PyObject *shown_event(const Path *self, PyObject *shown, Part *found)
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
static Py_ssize_t relay_event(const Path *self, const char *data, Py_ssize_t at, Py_ssize_t size, PyObject *now,
                              PyObject **sent)
{
    Part found[MAX_PLACES + 1]; /* the last is the number of the event that is sent */
    int plain = 1;
    Py_ssize_t begin = at;
    if (size - at >= self->before.size && memcmp(data + at, self->before.text, (size_t)self->before.size) == 0)
        begin += self->before.size;
    if (size - begin < LINE_SIZE || memcmp(data + begin, LINE, LINE_SIZE) != 0)
        return 0;
    Py_ssize_t end = find_places(self, data, begin + LINE_SIZE, size, found, &plain);
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
    PyObject *shown = live < 0 ? NULL : released(self, given, live, now), *event = NULL;
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
static Py_ssize_t relay_events(const Path *self, const char *data, Py_ssize_t at, Py_ssize_t size, PyObject *now,
                               PyObject **sent)
{
    while (at < size) {
        const Py_ssize_t end = relay_event(self, data, at, size, now, sent);
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
    if (set(self->at[COUNTS], &names.now, now) < 0)
        return NULL;
    const Py_ssize_t at = relay_events(self, data, 0, size, now, &sent);
    if (at < 0) {
        Py_XDECREF(sent);
        return NULL;
    }
    if (sent == NULL && (sent = PyBytes_FromStringAndSize(NULL, 0)) == NULL)
        return NULL;
    if (at == size)
        return sent;
    PyObject *rest = PyBytes_FromStringAndSize(data + at, size - at);
    if (rest == NULL) {
        Py_DECREF(sent);
        return NULL;
    }
    REPLACE(self->at[SENT], sent);
    REPLACE(self->at[REST], rest);
    Py_RETURN_NONE;
}

/* -- the type ------------------------------------------------------------------------------------------------------ */

static int open_histogram(Histogram *histogram, PyObject *self)
{
    PyObject *bounds = PyObject_GetAttrString(self, "bounds");
    histogram->self = self;
    histogram->counts = PyObject_GetAttrString(self, "counts");
    if (bounds != NULL && histogram->counts != NULL) {
        histogram->size = PyTuple_Check(bounds) ? PyTuple_Size(bounds) : MAX_BOUNDS + 1;
        if (histogram->size > MAX_BOUNDS || !PyList_Check(histogram->counts))
            PyErr_SetString(PyExc_ValueError, "a histogram has up to 16 bounds in a tuple, and its counts in a list");
        for (Py_ssize_t at = 0; !PyErr_Occurred() && at < histogram->size; at++)
            histogram->bounds[at] = PyFloat_AsDouble(PyTuple_GetItem(bounds, at));
    }
    Py_XDECREF(bounds);
    return PyErr_Occurred() ? -1 : 0;
}

/* `places` are kinds where `most` is 0, and otherwise less than `most`. -1 with an exception. */
static int open_form(Form *form, PyObject *around, PyObject *places, int most)
{
    const Py_ssize_t count = !PyTuple_Check(around) || !PyBytes_Check(places) ? MAX_PLACES + 1 : PyTuple_Size(around) - 1;
    if (count > MAX_PLACES || PyBytes_Size(places) != (count < 0 ? 0 : count)) {
        PyErr_SetString(PyExc_ValueError, "a template has up to 8 places between bytes in a tuple");
        return -1;
    }
    form->count = (int)count;
    for (Py_ssize_t at = 0; at <= count; at++) {
        PyObject *part = PyTuple_GetItem(around, at); /* borrowed */
        if (PyBytes_AsStringAndSize(part, (char **)&form->parts[at].text, &form->parts[at].size) < 0)
            return -1;
        if (at < count) {
            const unsigned char place = (unsigned char)PyBytes_AsString(places)[at];
            if (most ? place >= most : place != CONTENT && place != PADDING && place != FIGURE) {
                PyErr_SetString(PyExc_ValueError, "a template has a place of another kind, or one that it has not");
                return -1;
            }
            form->places[at] = place;
        }
    }
    return 0;
}

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
    if (!PyArg_ParseTuple(arguments, "OOOOOOOOOOOOOnn", &template, &given[GUARD], &given[TEXT], &given[COUNTS],
                          &given[SCANNER], &given[CURSOR], &given[RELEASER], &given[DECODE], &given[ENCODE],
                          &given[ESCAPE], &given[HELD], &given[HOLD], &record, &self->piece, &self->limit))
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

/* -- a read of the upstream's socket --------------------------------------------------------------------------------- */

enum {
    CLOCK, WRITE, CYCLE, FLOW, OVERHEAD, /* the parameters of its constructor, in their order, before numbers */
    EVENTS, FAILURE,                     /* members */
    READ_REFERENCES
};

typedef struct {
    PyObject_HEAD
    PyObject *at[READ_REFERENCES];
    Histogram overhead;
    Py_ssize_t small, most, escape, value;
    int ready;
} ReadPath;

static PyTypeObject *path_type;
static const char LINE_END[] = "\r\n";
#define LINE_END_SIZE 2
#define MAX_DIGITS 7 /* of the size of a chunk */

/* As gateway.proxy.asgi.scan_size weighs it. */
static int is_small(const ReadPath *self, const char *data, Py_ssize_t size)
{
    if (size <= self->small)
        return 1;
    Py_ssize_t weight = size;
    for (Py_ssize_t at = 0; at < size && weight <= self->most; at++)
        weight += data[at] == '\\' ? self->escape : data[at] == ',' ? self->value : 0;
    return weight <= self->most;
}

/* The size of the chunk whose line begins at `at`, which moves behind that line; 0 where not all of it is there, or it
   is the last, or has more than its size in its line. */
static Py_ssize_t chunk_at(const char *data, Py_ssize_t size, Py_ssize_t *at)
{
    Py_ssize_t length = 0, place = *at;
    for (; place < size && place - *at < MAX_DIGITS; place++) {
        const char byte = data[place];
        if (byte >= '0' && byte <= '9')
            length = length * 16 + byte - '0';
        else if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f')
            length = length * 16 + (byte | 0x20) - 'a' + 10;
        else
            break;
    }
    if (size - place < length + 2 * LINE_END_SIZE || memcmp(data + place, LINE_END, LINE_END_SIZE) != 0 ||
        memcmp(data + place + LINE_END_SIZE + length, LINE_END, LINE_END_SIZE) != 0)
        return 0;
    *at = place + LINE_END_SIZE;
    return length;
}

/* A chunk, a new reference. */
static PyObject *chunk_of(PyObject *body)
{
    const Py_ssize_t size = PyBytes_Size(body);
    int digits = 1;
    while (size >> 4 * digits)
        digits++;
    PyObject *chunk = PyBytes_FromStringAndSize(NULL, digits + size + 2 * LINE_END_SIZE);
    if (chunk != NULL) {
        char *to = PyBytes_AsString(chunk);
        while (digits)
            *to++ = "0123456789abcdef"[size >> 4 * --digits & 15];
        memcpy(to, LINE_END, LINE_END_SIZE);
        memcpy(to + LINE_END_SIZE, PyBytes_AsString(body), (size_t)size);
        memcpy(to + LINE_END_SIZE + size, LINE_END, LINE_END_SIZE);
    }
    return chunk;
}

/* What is left of a read, a new reference: from `at` on, where `left` bytes more belong to a chunk whose line has been
   taken; None if there is nothing. */
static PyObject *rest_of(const char *data, Py_ssize_t at, Py_ssize_t size, Py_ssize_t left)
{
    if (at == size)
        return Py_NewRef(Py_None);
    PyObject *rest = PyBytes_FromStringAndSize(data + at, size - at);
    if (left == 0 || rest == NULL)
        return rest;
    PyObject *line = PyBytes_FromFormat("%x\r\n", (unsigned)left);
    PyBytes_ConcatAndDel(&line, rest);
    return line;
}

/* -1 with an exception, as for an attribute that is not there. */
static int is_true(PyObject *object, Attribute *attribute)
{
    PyObject *value = get(object, attribute);
    const int found = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return found;
}

/* What is left of the read, a new reference, None if nothing is; NULL with an exception. */
static PyObject *relay_read(const ReadPath *self, const Path *path, PyObject *given)
{
    const char *data = PyBytes_AsString(given);
    const Py_ssize_t size = PyBytes_Size(given);
    Py_ssize_t at = 0, left = 0;
    PyObject *sent = NULL, *rest = NULL, *chunk = NULL, *after = NULL;
    PyObject *now = PyObject_CallNoArgs(self->at[CLOCK]);
    if (now == NULL || set(path->at[COUNTS], &names.now, now) < 0)
        goto done;
    while (at < size && left == 0) {
        Py_ssize_t begin = at;
        const Py_ssize_t length = chunk_at(data, size, &begin);
        const Py_ssize_t reached = length == 0 ? begin : relay_events(path, data, begin, begin + length, now, &sent);
        if (reached < 0)
            goto done;
        if (length == 0 || reached == begin)
            break;
        left = begin + length - reached;
        at = left ? reached : reached + LINE_END_SIZE;
    }
    if (at == 0) {
        rest = Py_NewRef(given);
        goto done;
    }
    if ((after = PyObject_CallNoArgs(self->at[CLOCK])) == NULL)
        goto done;
    const double spent = PyFloat_AsDouble(after) - PyFloat_AsDouble(now);
    if (PyErr_Occurred() || observe(&self->overhead, spent) < 0)
        goto done;
    if (sent != NULL) {
        PyObject *written = (chunk = chunk_of(sent)) == NULL ? NULL : CALL(WRITE, chunk);
        if (written == NULL)
            goto done;
        Py_DECREF(written);
    }
    rest = rest_of(data, at, size, left);
done:
    Py_XDECREF(sent);
    Py_XDECREF(chunk);
    Py_XDECREF(after);
    Py_XDECREF(now);
    return rest;
}

PyDoc_STRVAR(read_feed_doc, "What is left of a read for the slow path; None if nothing is.");

static PyObject *read_feed(PyObject *object, PyObject *given)
{
    ReadPath *self = (ReadPath *)object;
    PyObject *events = self->at[EVENTS], *rest = NULL, *type, *failure, *trace;
    if (!self->ready || !PyBytes_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "feed takes bytes");
        return NULL;
    }
    if (events == NULL || Py_TYPE(events) != path_type || !((Path *)events)->ready || self->at[FAILURE] != NULL ||
        !is_small(self, PyBytes_AsString(given), PyBytes_Size(given)))
        return Py_NewRef(given);
    int unable = is_true(self->at[FLOW], &names.write_paused);
    unable = unable ? unable : is_true(self->at[CYCLE], &names.disconnected);
    if (unable == 0) {
        Py_INCREF(events); /* `write` could put another in its place */
        rest = relay_read(self, (const Path *)events, given);
        Py_DECREF(events);
    } else if (unable > 0)
        rest = Py_NewRef(given);
    if (rest != NULL || !PyErr_ExceptionMatches(PyExc_Exception))
        return rest;
    PyErr_Fetch(&type, &failure, &trace);
    PyErr_NormalizeException(&type, &failure, &trace);
    if (trace != NULL)
        PyException_SetTraceback(failure, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    self->at[FAILURE] = failure;
    return Py_NewRef(given);
}

static int read_init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    ReadPath *self = (ReadPath *)object;
    PyObject *given[EVENTS];
    if (self->at[CLOCK] != NULL || (keywords != NULL && PyDict_Size(keywords) > 0)) {
        PyErr_SetString(PyExc_TypeError, "a path is made once, and without keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "OOOOOnnnn", &given[CLOCK], &given[WRITE], &given[CYCLE], &given[FLOW],
                          &given[OVERHEAD], &self->small, &self->most, &self->escape, &self->value))
        return -1;
    for (int name = 0; name < EVENTS; name++)
        self->at[name] = Py_NewRef(given[name]);
    if (open_histogram(&self->overhead, given[OVERHEAD]) < 0)
        return -1;
    self->ready = 1;
    return 0;
}

static int read_traverse(PyObject *object, visitproc visit, void *arg)
{
    const ReadPath *self = (ReadPath *)object;
    Py_VISIT(Py_TYPE(object));
    for (int name = 0; name < READ_REFERENCES; name++)
        Py_VISIT(self->at[name]);
    Py_VISIT(self->overhead.counts);
    return 0;
}

static int read_clear(PyObject *object)
{
    ReadPath *self = (ReadPath *)object;
    self->ready = 0;
    for (int name = 0; name < READ_REFERENCES; name++)
        Py_CLEAR(self->at[name]);
    Py_CLEAR(self->overhead.counts);
    return 0;
}

static PyMethodDef read_methods[] = {
    {"feed", read_feed, METH_O, read_feed_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef read_members[] = {
    {"events", T_OBJECT, offsetof(ReadPath, at) + EVENTS * sizeof(PyObject *), 0, "The way that events take, or None."},
    {"failure", T_OBJECT, offsetof(ReadPath, at) + FAILURE * sizeof(PyObject *), READONLY, "What it raised, or None."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot read_slots[] = {
    {Py_tp_init, read_init},         {Py_tp_new, PyType_GenericNew},  {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, read_traverse}, {Py_tp_clear, read_clear},       {Py_tp_methods, read_methods},
    {Py_tp_members, read_members},   {Py_tp_doc, "See bytes_path.py."}, {0, NULL},
};

static PyType_Spec read_spec = {
    "gateway.guard._bytes_path.ReadPath", sizeof(ReadPath), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, read_slots,
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_bytes_path", "gateway.guard.bytes_path in C.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__bytes_path(void)
{
    const struct {
        PyObject **at;
        const char *text;
    } interned[] = {
        {&names.ahead.name, "ahead"}, {&names.arrival.name, "arrival"},
        {&names.base.name, "base"}, {&names.disconnected.name, "disconnected"},
        {&names.folded.name, "folded"}, {&names.held.name, "held"},
        {&names.held_since.name, "held_since"}, {&names.left.name, "left"},
        {&names.live.name, "live"}, {&names.machine.name, "machine"},
        {&names.now.name, "now"}, {&names.number.name, "number"},
        {&names.scan_quickly, "scan_quickly"},
        {&names.scanned.name, "scanned"}, {&names.state.name, "state"},
        {&names.total.name, "total"}, {&names.usage.name, "usage"},
        {&names.walk, "walk"}, {&names.write_paused.name, "write_paused"},
        {&names.written.name, "written"},
    };
    get_slot = (descrgetfunc)PyType_GetSlot(&PyMemberDescr_Type, Py_tp_descr_get);
    set_slot = (descrsetfunc)PyType_GetSlot(&PyMemberDescr_Type, Py_tp_descr_set);
    if (get_slot == NULL || set_slot == NULL)
        return NULL;
    for (size_t at = 0; at < sizeof(interned) / sizeof(interned[0]); at++)
        if ((*interned[at].at = PyUnicode_InternFromString(interned[at].text)) == NULL)
            return NULL;
    PyObject *module = PyModule_Create(&module_definition), *read_type = NULL;
    path_type = module == NULL ? NULL : (PyTypeObject *)PyType_FromSpec(&path_spec);
    if (path_type == NULL || (read_type = PyType_FromSpec(&read_spec)) == NULL ||
        PyModule_AddType(module, path_type) < 0 || PyModule_AddType(module, (PyTypeObject *)read_type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(read_type);
    return module;
}
