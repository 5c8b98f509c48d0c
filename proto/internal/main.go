// How the API server's own structs show values in refusals, from upstream's Go types.
//
//	go run . > ../../controlplane/apiserver/internal_types-1.37.txt
//	go run -modfile=go-1.36.mod . > ../../controlplane/apiserver/internal_types-1.36.txt
//
// A refusal that shows an object shows the type that the server works with: its members have Go's names, in Go's order,
// and are there even when they are empty. Members of the published type are found by the name of the field in Go.
package main

import (
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/networking"
	"k8s.io/kubernetes/pkg/apis/rbac"
	"k8s.io/kubernetes/pkg/apis/storage"
)

type pair struct{ internal, published, holder reflect.Type }

func pairOf[I, P any]() pair {
	return pair{reflect.TypeFor[I](), reflect.TypeFor[P](), reflect.TypeFor[struct{}]()}
}

var roots = []pair{
	pairOf[core.PodTemplateSpec, corev1.PodTemplateSpec](),
	pairOf[core.PersistentVolumeClaim, corev1.PersistentVolumeClaim](),
	pairOf[core.NodeSelectorTerm, corev1.NodeSelectorTerm](),
	pairOf[core.TopologySelectorTerm, corev1.TopologySelectorTerm](),
	pairOf[core.Node, corev1.Node](),
	pairOf[core.Service, corev1.Service](),
	pairOf[apps.Deployment, appsv1.Deployment](),
	pairOf[apps.DaemonSet, appsv1.DaemonSet](),
	pairOf[apps.StatefulSet, appsv1.StatefulSet](),
	pairOf[batch.Job, batchv1.Job](),
	pairOf[rbac.RoleBinding, rbacv1.RoleBinding](),
	pairOf[storage.StorageClass, storagev1.StorageClass](),
	pairOf[storage.CSIDriver, storagev1.CSIDriver](),
	pairOf[storage.CSINode, storagev1.CSINode](),
	pairOf[core.PersistentVolumeSource, corev1.PersistentVolumeSource](),
	pairOf[core.VolumeNodeAffinity, corev1.VolumeNodeAffinity](),
	pairOf[core.ScopeSelector, corev1.ScopeSelector](),
	pairOf[storage.VolumeAttachmentSpec, storagev1.VolumeAttachmentSpec](),
	pairOf[networking.ParentReference, networkingv1.ParentReference](),
	pairOf[certificates.PodCertificateRequestSpec, certificatesv1beta1.PodCertificateRequestSpec](),
}

var plain = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():        "time",
	reflect.TypeFor[resource.Quantity]():  "quantity",
	reflect.TypeFor[intstr.IntOrString](): "number",
}

func main() {
	fmt.Println("# Made by proto/internal, of k8s.io/kubernetes " + version() + "; do not edit.")
	seen, queue := map[reflect.Type]bool{}, roots
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		if !seen[next.internal] {
			seen[next.internal] = true
			fmt.Println(nameOf(next.internal))
			queue = append(queue, members(next)...)
		}
	}
}

// members prints those of a struct: the name that is shown, the published name and the type; `.` stands for no name.
func members(of pair) []pair {
	var found []pair
	for i := range of.internal.NumField() {
		field := of.internal.Field(i)
		if field.Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue // an object that the server works with says nothing of its type
		}
		prefix := ""
		other, ok := of.published.FieldByName(field.Name)
		if !ok {
			prefix = "^"
			other, ok = of.holder.FieldByName(field.Name)
		}
		if !ok {
			continue // which no published object has
		}
		name, _, _ := strings.Cut(other.Tag.Get("json"), ",")
		if name == "" {
			name = "."
		}
		name = prefix + name
		var below []pair
		form := formOf(field.Type, func(t reflect.Type) {
			below = append(below, pair{t, published(other.Type), of.published})
		})
		fmt.Printf(" %s %s %s\n", shownName(field), name, form)
		found = append(found, below...)
	}
	return found
}

func shownName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	if name == "-" {
		return name
	}
	if field.Anonymous && name == "" {
		return "."
	}
	if name == "" {
		return field.Name
	}
	return name
}

// formOf says a type in Go's notation; a struct with names in JSON is `same`, shown as it is published.
func formOf(t reflect.Type, below func(reflect.Type)) string {
	if name, ok := plain[t]; ok {
		return name
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + formOf(t.Elem(), below)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "*text"
		}
		return "[]" + formOf(t.Elem(), below)
	case reflect.Map:
		return "map:" + formOf(t.Elem(), below)
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "bool"
	case reflect.Struct:
		if strings.Contains(t.PkgPath(), "/meta/v1") {
			return "same"
		}
		below(t)
		return nameOf(t)
	case reflect.Interface:
		return "*same"
	default:
		return "number"
	}
}

func published(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "k8s.io/kubernetes" {
			return module.Version
		}
	}
	return ""
}

func nameOf(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	return parts[len(parts)-1] + "." + t.Name()
}
