"""ImageNet classifiers of torchvision under their plain names, with the weights published first (IMAGENET1K_V1)."""

from testbed import Model, StandardNormalization, StandardTransform, registry
from testbed.weights import with_weights


def _loader(name):
    def load():
        from torchvision.models import get_model, get_model_weights

        weights = get_model_weights(name)["IMAGENET1K_V1"]
        file_name = weights.url.rsplit("/", 1)[-1]
        network = get_model(name, weights=None)
        return with_weights(network, file_name, f"{name}.pth", fallback=lambda: weights.get_state_dict(check_hash=True))

    return load


for _name in (
    "alexnet", "densenet121", "mobilenet_v2", "mobilenet_v3_small", "resnet18", "resnet50", "squeezenet1_0", "vgg16"
):  # fmt: skip
    registry.add_model(
        Model(
            name=_name,
            transform=StandardTransform(img_resize_size=256, img_crop_size=224),
            normalization=StandardNormalization(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            classifier_loader=_loader(_name),
            eval_batch_size=64,
            arch=_name,
            tags=["imagenet", "standard"],
        )
    )
