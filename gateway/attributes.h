/* Reading attributes of Python objects from C, for the modules in C; only the stable ABI is used. */

#ifndef GATEWAY_ATTRIBUTES_H
#define GATEWAY_ATTRIBUTES_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <structmember.h>

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

static descrgetfunc get_slot;
static descrsetfunc set_slot;

/* -1 with an exception. */
static inline int open_attribute(Attribute *attribute, const char *name)
{
    get_slot = (descrgetfunc)PyType_GetSlot(&PyMemberDescr_Type, Py_tp_descr_get);
    set_slot = (descrsetfunc)PyType_GetSlot(&PyMemberDescr_Type, Py_tp_descr_set);
    attribute->name = get_slot == NULL || set_slot == NULL ? NULL : PyUnicode_InternFromString(name);
    return attribute->name == NULL ? -1 : 0;
}

/* Has the type of an object a slot for it? To find it again each time is most of what reading one costs. */
static inline int has_slot(Attribute *attribute, PyObject *object)
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

/* A new reference. */
static inline PyObject *get(PyObject *object, Attribute *attribute)
{
    if (has_slot(attribute, object))
        return get_slot(attribute->slot, object, (PyObject *)Py_TYPE(object));
    return PyObject_GetAttr(object, attribute->name);
}

/* -1 with an exception. */
static inline int set(PyObject *object, Attribute *attribute, PyObject *value)
{
    if (has_slot(attribute, object))
        return set_slot(attribute->slot, object, value);
    return PyObject_SetAttr(object, attribute->name, value);
}

/* -1 with an exception, too. */
static inline Py_ssize_t get_number(PyObject *object, Attribute *attribute)
{
    PyObject *value = get(object, attribute);
    const Py_ssize_t number = value == NULL ? -1 : PyLong_AsSsize_t(value);
    Py_XDECREF(value);
    return number;
}

/* -1 with an exception. */
static inline int set_number(PyObject *object, Attribute *attribute, Py_ssize_t number)
{
    PyObject *value = PyLong_FromSsize_t(number);
    const int done = value == NULL ? -1 : set(object, attribute, value);
    Py_XDECREF(value);
    return done;
}

/* -1 with an exception. */
static inline int add_to(PyObject *object, Attribute *attribute, Py_ssize_t amount)
{
    const Py_ssize_t before = get_number(object, attribute);
    return before == -1 && PyErr_Occurred() ? -1 : set_number(object, attribute, before + amount);
}

/* -1 with an exception. */
static inline int is_true(PyObject *object, Attribute *attribute)
{
    PyObject *value = get(object, attribute);
    const int found = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return found;
}

#endif
