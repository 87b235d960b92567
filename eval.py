"""Run models on eval settings: python eval.py --models A B --eval-settings X Y --gpus 0 1."""

from testbed.commands.evaluate import main

if __name__ == "__main__":
    main()
